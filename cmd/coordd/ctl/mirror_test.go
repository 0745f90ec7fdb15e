package ctl

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/client"
)

// Keys get to another cluster, under another prefix; deletions made between two runs get there by the note of progress, or by
// --delete-extra.
func TestMakeMirrorCommand(t *testing.T) {
	from, to := newTool(t), newTool(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, copied := from.node.Client(), to.node.Client()
	put := func(c *client.Client, key, value string) {
		t.Helper()
		if _, err := c.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(c, "src/a", "1")
	put(c, "src/b", "1")
	put(c, "other", "1")
	put(copied, "dst/extra", "1")

	// until runs make-mirror until the copy has the keys.
	until := func(keys string, flags ...string) {
		t.Helper()
		run, stop := context.WithCancel(ctx)
		ended := make(chan int, 1)
		w := copied.Watch(ctx, "", client.WithPrefix(), client.WithCreatedNotify())
		defer w.Close()
		go func() {
			_, errOut, code := from.runWith(run, func(ctx context.Context, _, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "copy") {
					return to.node.Dialer()(ctx, address)
				}
				return from.node.Dialer()(ctx, address)
			}, append([]string{"make-mirror", "copy:1", "--prefix", "src/"}, flags...)...)
			if errOut != "" {
				t.Error(errOut)
			}
			ended <- code
		}()
		for {
			if _, err := w.Next(ctx); err != nil {
				t.Fatal(err)
			}
			r, err := copied.Get(ctx, "", client.WithPrefix(), client.WithKeysOnly())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range r.Kvs {
				got = append(got, string(kv.Key))
			}
			if strings.Join(got, " ") == keys {
				break
			}
		}
		stop()
		if code := <-ended; code != exitInterrupted {
			t.Errorf("exit %d", code)
		}
	}
	until("dst/a dst/b dst/extra note", "--dest-prefix", "dst/", "--progress-key", "note")
	if _, err := c.Delete(ctx, "src/b"); err != nil {
		t.Fatal(err)
	}
	put(c, "src/c", "1")
	until("dst/a dst/c dst/extra note", "--dest-prefix", "dst/", "--progress-key", "note")
	if _, err := c.Delete(ctx, "src/a"); err != nil {
		t.Fatal(err)
	}
	until("dst/c note", "--dest-prefix", "dst/", "--delete-extra")
	until("c dst/c note", "--no-dest-prefix")
	if _, _, code := from.run(ctx, "", "make-mirror", "x", "--no-dest-prefix", "--dest-prefix", "y"); code != exitArguments {
		t.Errorf("exit %d", code)
	}
}

// runWith runs a command line with another way to reach members.
func (tl *tool) runWith(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), args ...string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	root := &cobra.Command{Use: "coordd", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.AddCommand(commands(&settings{
		lookup: func(name string) (string, bool) { v, ok := tl.env[name]; return v, ok },
		extra:  []client.Option{client.WithDialer(dial)},
	})...)
	root.SetArgs(args)
	code = Report(&errOut, root.ExecuteContext(ctx))
	return out.String(), errOut.String(), code
}

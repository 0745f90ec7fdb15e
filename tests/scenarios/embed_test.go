package scenarios

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coordd/coordd/embed"
)

// started starts an embedded node that serves a URL.
func started(t *testing.T, dir, url string) (*embed.Node, error) {
	t.Helper()
	cfg := embed.NewTestConfig(dir)
	if url != "" {
		cfg.ListenClientURLs = []string{url}
	}
	return embed.Start(limited(t), cfg)
}

// Report 57: whatever is wrong with its directory, an embedded node gives an error and leaves the program alive; it can be closed
// before it is ready and twice, and gives its port back at once. TestMain sees to it that no goroutine is left.
func TestEmbeddedFailuresAreErrors(t *testing.T) {
	t.Parallel()
	t.Run("not a directory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		write(t, file, "text")
		wantStartError(t, file, file)
	})
	t.Run("foreign files", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "member", "snap", "db"), strings.Repeat("this is no data file\n", 1000))
		wantStartError(t, dir, filepath.Join(dir, "member"))
	})
	t.Run("in use", func(t *testing.T) {
		dir := t.TempDir()
		n := must(started(t, dir, ""))(t)
		wantStartError(t, dir, dir)
		closed(t, n)
		closed(t, must(started(t, dir, ""))(t))
	})
	t.Run("not ready", func(t *testing.T) {
		cfg := embed.NewTestConfig(t.TempDir())
		cfg.Name, cfg.InitialCluster = "a", "a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3"
		cfg.AdvertisePeerURLs = []string{"http://127.0.0.1:1"}
		n := must(embed.Start(limited(t), cfg))(t)
		select {
		case <-n.Ready():
			t.Error("ready without the others")
		default:
		}
		closed(t, n)
		closed(t, n)
	})
	t.Run("the same port again", func(t *testing.T) {
		dir, url := t.TempDir(), "http://127.0.0.1:0"
		for i := range 3 {
			n := must(started(t, dir, url))(t)
			if err := n.WaitReady(limited(t)); err != nil {
				t.Fatal(err)
			}
			must(n.Client().Put(limited(t), "k", "v"))(t)
			if i > 0 && n.ClientURLs()[0] != url {
				t.Errorf("it serves %v, not %s", n.ClientURLs(), url)
			}
			url = n.ClientURLs()[0]
			closed(t, n)
		}
		must(net.Listen("tcp", strings.TrimPrefix(url, "http://")))(t).Close()
	})
	t.Run("full disk", embeddedOnFullDisk)
}

// embeddedOnFullDisk writes until the disk is full: the node ends with an error that says so.
func embeddedOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("coordd-tests", dir, "tmpfs", 0, "size=80m"); err != nil { // a segment of the log takes 64 MB at once
		t.Skipf("this needs a small file system, and mounting one is not permitted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	n := must(started(t, filepath.Join(dir, "data"), ""))(t)
	defer n.Close()
	if err := n.WaitReady(limited(t)); err != nil {
		t.Fatal(err)
	}
	ctx, value := limited(t), strings.Repeat("v", 1<<20)
	for {
		if _, err := n.Client().Put(ctx, "k", value); err != nil {
			break
		}
	}
	select {
	case <-n.Done():
	case <-ctx.Done():
		t.Fatal("the node goes on without room")
	}
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("it ended with %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// closed closes a node that has no reason to complain.
func closed(t *testing.T, n *embed.Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// wantStartError fails the test unless the start fails with an error that names what is in the way.
func wantStartError(t *testing.T, dir, name string) {
	t.Helper()
	n, err := started(t, dir, "")
	if err == nil {
		_ = n.Close()
		t.Fatal("it has started")
	}
	if !strings.Contains(err.Error(), name) {
		t.Errorf("the error does not name %s: %v", name, err)
	}
}

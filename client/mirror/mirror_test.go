package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/mirror"
	"github.com/coordd/coordd/embed"
	"github.com/coordd/coordd/internal/testnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair is a source and a place for the copy.
type pair struct {
	ctx      context.Context
	from, to *embed.Node
}

func newPair(t *testing.T) *pair {
	p := &pair{from: testnode.Start(t), to: testnode.Start(t)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	p.ctx = ctx
	return p
}

func (p *pair) put(t testing.TB, n *embed.Node, kvs ...string) {
	t.Helper()
	for _, kv := range kvs {
		k, v, _ := strings.Cut(kv, "=")
		_, err := n.Client().Put(p.ctx, k, v)
		must(t, err)
	}
}

func (p *pair) del(t testing.TB, n *embed.Node, key string, opts ...client.DeleteOption) {
	t.Helper()
	_, err := n.Client().Delete(p.ctx, key, opts...)
	must(t, err)
}

// watch watches the copy, from before it returns on.
func (p *pair) watch(t testing.TB, key string, opts ...client.WatchOption) *client.Watcher {
	t.Helper()
	w := p.to.Client().Watch(p.ctx, key, append(opts, client.WithCreatedNotify())...)
	_, err := w.Next(p.ctx)
	must(t, err)
	return w
}

// read gives all keys below a prefix, without it.
func (p *pair) read(t testing.TB, n *embed.Node, prefix string) map[string]string {
	t.Helper()
	r, err := n.Client().Get(p.ctx, prefix, client.WithPrefix())
	must(t, err)
	m := map[string]string{}
	for _, kv := range r.Kvs {
		m[strings.TrimPrefix(string(kv.Key), prefix)] = string(kv.Value)
	}
	return m
}

// run runs a mirror until the copy has what the source has now, and stops it.
func (p *pair) run(t testing.TB, m *mirror.Mirror, source, dest string) {
	t.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	p.equal(t, source, dest)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("run ended with %v", err)
	}
}

// equal waits until the copy has what the source has now.
func (p *pair) equal(t testing.TB, source, dest string) {
	t.Helper()
	w := p.to.Client().Watch(p.ctx, "", client.WithPrefix(), client.WithCreatedNotify())
	defer w.Close()
	want := p.read(t, p.from, source)
	for {
		_, err := w.Next(p.ctx)
		got := p.read(t, p.to, dest)
		if err != nil {
			t.Fatalf("%v: the copy has %v, want %v", err, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		if maps.Equal(got, want) {
			return
		}
	}
}

func TestMirror(t *testing.T) {
	p := newPair(t)
	p.put(t, p.from, "src/a=1", "src/b=2", "srcx=no", "other=no")
	p.put(t, p.to, "dst/b=2", "dst/c=too much", "dsty=stays", "dst.=stays")
	before, err := p.to.Client().Get(p.ctx, "dst/b")
	must(t, err)
	m := mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("src/"), mirror.Into("dst/"))
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	p.equal(t, "src/", "dst/")
	after, err := p.to.Client().Get(p.ctx, "dst/b")
	must(t, err)
	if after.Kvs[0].ModRevision != before.Kvs[0].ModRevision {
		t.Error("what was right was written again")
	}
	p.put(t, p.from, "src/a=3", "src/=empty name", "src/z=9")
	p.del(t, p.from, "src/b")
	p.equal(t, "src/", "dst/")

	// A lease ends.
	l, err := p.from.Client().Grant(p.ctx, 60)
	must(t, err)
	_, err = p.from.Client().Put(p.ctx, "src/leased", "x", client.WithLease(client.LeaseID(l.ID)))
	must(t, err)
	p.equal(t, "src/", "dst/")
	_, err = p.from.Client().Revoke(p.ctx, client.LeaseID(l.ID))
	must(t, err)
	p.equal(t, "src/", "dst/")
	if err := m.Run(p.ctx); err == nil {
		t.Error("two runs at once")
	}
	// The last change is counted when its answer is there, which may be after the copy shows it.
	for m.Stats().Deletes < 3 && p.ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	cancel()
	<-ended
	if s := m.Stats(); s.Puts != 5 || s.Deletes != 3 || s.Compared != 1 || s.Revision == 0 {
		t.Errorf("stats %+v", s)
	}
	if got := p.read(t, p.to, "dst"); got["y"] != "stays" || got["."] != "stays" {
		t.Errorf("beside the copy: %v", got)
	}
}

// What happens while no mirror runs is caught up with, with and without a note, and whether or not history is there.
func TestResume(t *testing.T) {
	for _, key := range []string{"", "note", "dst/note"} {
		for _, compacted := range []bool{false, true} {
			t.Run(fmt.Sprintf("note %q compacted %v", key, compacted), func(t *testing.T) {
				p := newPair(t)
				mirrored := func() *mirror.Mirror {
					return mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("src/"), mirror.Into("dst/"), mirror.Progress(key))
				}
				equal := func(m *mirror.Mirror) {
					t.Helper()
					ctx, cancel := context.WithCancel(p.ctx)
					ended := make(chan error, 1)
					go func() { ended <- m.Run(ctx) }()
					want := p.read(t, p.from, "src/")
					w := p.to.Client().Watch(p.ctx, "", client.WithPrefix(), client.WithCreatedNotify())
					defer w.Close()
					for {
						_, err := w.Next(p.ctx)
						must(t, err)
						got := p.read(t, p.to, "dst/")
						delete(got, "note")
						if maps.Equal(got, want) {
							break
						}
					}
					cancel()
					<-ended
				}
				p.put(t, p.from, "src/a=1", "src/b=1", "src/c=1")
				equal(mirrored())
				p.del(t, p.from, "src/b")
				p.put(t, p.from, "src/c=2", "src/d=2")
				if compacted {
					r, err := p.from.Client().Get(p.ctx, "x")
					must(t, err)
					_, err = p.from.Client().Compact(p.ctx, r.Header.Revision)
					must(t, err)
				}
				m := mirrored()
				equal(m)
				want := int64(1)
				if key != "" && !compacted {
					want = 0
				}
				if got := m.Stats().Compared; got != want {
					t.Errorf("compared %d times, want %d", got, want)
				}
			})
		}
	}
}

func TestKeepExtra(t *testing.T) {
	p := newPair(t)
	p.put(t, p.to, "d/extra=stays", "d/a=0")
	p.put(t, p.from, "s/a=1")
	m := mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("s/"), mirror.Into("d/"), mirror.KeepExtra())
	ctx, cancel := context.WithCancel(p.ctx)
	w := p.watch(t, "d/a")
	defer w.Close()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	_, err := w.Next(p.ctx)
	must(t, err)
	p.del(t, p.from, "s/a") // deletions that are seen are done
	_, err = w.Next(p.ctx)
	must(t, err)
	cancel()
	<-ended
	if got := p.read(t, p.to, "d/"); !maps.Equal(got, map[string]string{"extra": "stays"}) {
		t.Errorf("the copy has %v", got)
	}
}

// With From a mirror does not compare.
func TestFrom(t *testing.T) {
	p := newPair(t)
	p.put(t, p.from, "s/a=1")
	r, err := p.from.Client().Put(p.ctx, "s/b", "1")
	must(t, err)
	m := mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("s/"), mirror.From(r.Header.Revision))
	w := p.watch(t, "s/b")
	defer w.Close()
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	_, err = w.Next(p.ctx)
	must(t, err)
	cancel()
	<-ended
	if got := p.read(t, p.to, ""); !maps.Equal(got, map[string]string{"s/b": "1"}) || m.Stats().Compared != 0 {
		t.Errorf("the copy has %v", got)
	}
}

// A revision is done at once, if a transaction can hold it; and a larger one is done.
func TestAtomic(t *testing.T) {
	p := newPair(t)
	m := mirror.New(p.from.Client(), p.to.Client(), mirror.Progress("\xffnote"), mirror.MaxOps(9))
	write := func(n, v int) {
		var ops []client.Op
		for i := range n {
			ops = append(ops, client.OpPut(fmt.Sprintf("k%02d", i), fmt.Sprint(v)))
		}
		_, err := p.from.Client().Txn(p.ctx).Then(ops...).Commit()
		must(t, err)
	}
	write(8, 0)
	ctx, cancel := context.WithCancel(p.ctx)
	ended := make(chan error, 1)
	w := p.watch(t, "k", client.WithPrefix())
	defer w.Close()
	go func() { ended <- m.Run(ctx) }()
	for v := range 5 {
		write(8, v+1)
	}
	last := map[string]string{}
	for last["k00"] != "5" {
		r, err := w.Next(p.ctx)
		must(t, err)
		for i, e := range r.Events {
			last[string(e.Kv.Key)] = string(e.Kv.Value)
			if i+1 < len(r.Events) && r.Events[i+1].Kv.ModRevision == e.Kv.ModRevision {
				continue
			}
			for k := range 8 {
				if v := last[fmt.Sprintf("k%02d", k)]; v != last["k00"] {
					t.Fatalf("a revision was split: %v", last)
				}
			}
		}
	}
	write(30, 6)
	for len(last) < 30 {
		r, err := w.Next(p.ctx)
		must(t, err)
		for _, e := range r.Events {
			last[string(e.Kv.Key)] = string(e.Kv.Value)
		}
	}
	cancel()
	<-ended
}

// losing is a connection on which the replies to some transactions are lost.
type losing struct {
	grpc.ClientConnInterface
	mu   sync.Mutex
	n    int
	then func()
}

func (l *losing) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := l.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if method != "/etcdserverpb.KV/Txn" || err != nil {
		return err
	}
	if l.n++; l.n%2 == 0 {
		return nil
	}
	if l.then != nil {
		l.then()
	}
	return status.Error(codes.Unavailable, "the reply was lost")
}

func TestLostReplies(t *testing.T) {
	for _, key := range []string{"", "note"} {
		p := newPair(t)
		to, err := client.NewFromConn(&losing{ClientConnInterface: p.to.Conn()})
		must(t, err)
		m := mirror.New(p.from.Client(), to, mirror.Keys("s/"), mirror.Progress(key), mirror.MaxOps(3))
		p.put(t, p.from, "s/a=1", "s/b=1", "s/c=1", "s/d=1", "s/e=1")
		ctx, cancel := context.WithCancel(p.ctx)
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		p.equal(t, "s/", "s/")
		for i := range 10 {
			p.put(t, p.from, fmt.Sprintf("s/a=%d", i))
			p.del(t, p.from, "s/b")
		}
		p.equal(t, "s/", "s/")
		cancel()
		<-ended
		must(t, to.Close())
	}
}

func TestSuperseded(t *testing.T) {
	p := newPair(t)
	mirrored := func() *mirror.Mirror {
		return mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("s/"), mirror.Progress("note"))
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.put(t, p.from, "s/a=1")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- mirrored().Run(p.ctx) }()
	p.equal(t, "s/", "s/")
	p.put(t, p.from, "s/b=1")
	p.equal(t, "s/", "s/")
	note := p.read(t, p.to, "note")[""]
	w := p.watch(t, "note")
	defer w.Close()
	go func() { second <- mirrored().Run(ctx) }()
	_, err := w.Next(p.ctx) // the second has put its note in place of the first one's
	must(t, err)
	if p.read(t, p.to, "note")[""] == note {
		t.Fatal("the note is the same")
	}
	p.put(t, p.from, "s/c=1")
	p.equal(t, "s/", "s/")
	if err := <-first; !errors.Is(err, mirror.ErrSuperseded) {
		t.Errorf("the first ended with %v", err)
	}
	cancel()
	<-second

	p.put(t, p.to, "note=scribble")
	if err := mirrored().Run(p.ctx); err == nil || !strings.Contains(err.Error(), "note") {
		t.Errorf("with another's key as note: %v", err)
	}
	for _, prefixes := range [][2]string{{"a/", "a/b/"}, {"a/b/", "a/"}, {"", "a/"}, {"a/", "a/"}} {
		m := mirror.New(p.from.Client(), p.from.Client(), mirror.Keys(prefixes[0]), mirror.Into(prefixes[1]))
		if err := m.Run(p.ctx); err == nil || !strings.Contains(err.Error(), "within") {
			t.Errorf("%q into %q: %v", prefixes[0], prefixes[1], err)
		}
	}
}

// Whatever happens on either side between and during runs, the copy becomes what the source is.
func TestBecomesEqual(t *testing.T) {
	p := newPair(t)
	rapid.Check(t, func(rt *rapid.T) {
		m := func() *mirror.Mirror {
			return mirror.New(p.from.Client(), p.to.Client(), mirror.Keys("s/"), mirror.Into("d/"),
				mirror.Progress(rapid.SampledFrom([]string{"", "note"}).Draw(rt, "note")), mirror.MaxOps(rapid.IntRange(2, 8).Draw(rt, "ops")))
		}
		name := rapid.StringMatching(`[a-c]{1,2}`)
		for range rapid.IntRange(1, 3).Draw(rt, "runs") {
			foreign := rapid.Bool().Draw(rt, "somebody else writes to the copy")
			for range rapid.IntRange(0, 8).Draw(rt, "changes") {
				k := name.Draw(rt, "key")
				if rapid.Bool().Draw(rt, "delete") {
					p.del(t, p.from, "s/"+k, client.WithPrefix())
				} else {
					p.put(t, p.from, "s/"+k+"="+k)
				}
			}
			if foreign { // which a mirror that only follows cannot see
				p.put(t, p.to, "d/"+name.Draw(rt, "foreign")+"=x")
				p.del(t, p.to, "note")
			}
			p.run(t, m(), "s/", "d/")
		}
		if m := p.read(t, p.to, ""); m["note"] == "" {
			p.put(t, p.to, "d/left=") // the next check begins with something to clear, and no note
		}
	})
}

// A copy of the configuration in the same cluster.
func Example() {
	n, stop := testnode.Run()
	defer stop()
	c := n.Client()
	ctx, cancel := context.WithCancel(context.Background())
	put, err := c.Put(ctx, "config/color", "red")
	if err != nil {
		log.Fatal(err)
	}
	w := c.Watch(ctx, "backup/color", client.WithRev(put.Header.Revision))
	m := mirror.New(c, c, mirror.Keys("config/"), mirror.Into("backup/"), mirror.Progress("mirrors/config"))
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()

	r, err := w.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s = %s\n", r.Events[0].Kv.Key, r.Events[0].Kv.Value)
	cancel()
	fmt.Println(<-done)
	// Output:
	// backup/color = red
	// context canceled
}

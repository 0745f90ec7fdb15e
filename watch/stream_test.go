package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/kvpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within10s is the context of a wait that must be short.
func within10s(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// text writes a response shortly.
func text(t testing.TB, r *Response) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%d@%d", r.WatchID, r.Revision)
	if r.Created {
		b.WriteString(" created")
	}
	if r.Canceled {
		b.WriteString(" canceled")
	}
	if r.CompactRevision != 0 {
		fmt.Fprintf(&b, " compacted %d", r.CompactRevision)
	}
	if r.Reason != "" {
		b.WriteString(" " + r.Reason)
	}
	events, err := r.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == kvpb.Event_DELETE {
			fmt.Fprintf(&b, " -%s@%d", e.Kv.Key, e.Kv.ModRevision)
		} else {
			fmt.Fprintf(&b, " %s=%s@%d", e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
		}
	}
	return b.String()
}

// reading is a stream that is read one response at a time.
type reading struct {
	*Stream
	rest []Response // taken and not yet looked at
}

func (d *db) open(o StreamOptions) *reading { return &reading{Stream: d.hub.Open(o)} }

// Next returns what is left of the last call first.
func (s *reading) Next(ctx context.Context) ([]Response, error) {
	if got := s.rest; len(got) > 0 {
		s.rest = nil
		return got, nil
	}
	return s.Stream.Next(ctx)
}

// want reads responses and compares them with texts.
func want(t testing.TB, s *reading, texts ...string) {
	t.Helper()
	ctx := within10s(t)
	for _, w := range texts {
		got, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("%v; want %q", err, w)
		}
		if g := text(t, &got[0]); g != w {
			t.Fatalf("got %q, want %q", g, w)
		}
		s.rest = slices.Clone(got[1:])
	}
}

// wantSet is want in any order.
func wantSet(t testing.TB, s *reading, texts ...string) {
	t.Helper()
	var got []string
	ctx := within10s(t)
	for range texts {
		r, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, text(t, &r[0]))
		s.rest = slices.Clone(r[1:])
	}
	slices.Sort(got)
	slices.Sort(texts)
	if !slices.Equal(got, texts) {
		t.Fatalf("got %q, want %q", got, texts)
	}
}

// quiet checks that nothing waits.
func quiet(t testing.TB, s *reading) {
	t.Helper()
	got, err := s.take()
	if got = append(s.rest, got...); err != nil || len(got) > 0 {
		t.Fatalf("%d responses wait, error %v", len(got), err)
	}
}

func create(t testing.TB, s interface {
	Create(CreateOptions) (int64, error)
}, o CreateOptions) int64 {
	t.Helper()
	id, err := s.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestCreate goes through what can become of a create request.
func TestCreate(t *testing.T) {
	d := testDB(t, Options{})
	for i := range 5 {
		d.put("k", fmt.Sprint(i)) // 2 to 6
	}
	d.compact(t, 4)
	s := d.open(StreamOptions{})
	defer s.Close()
	for _, x := range []struct {
		o    CreateOptions
		want error
	}{
		{CreateOptions{Key: []byte("k"), Start: -1}, errs.ErrCompacted},
		{CreateOptions{Key: []byte("k"), End: []byte("k")}, ErrEmptyRange},
		{CreateOptions{Key: []byte("k"), End: []byte("a")}, ErrEmptyRange},
	} {
		if _, err := s.Create(x.o); !errors.Is(err, x.want) {
			t.Errorf("create %+v: %v, want %v", x.o, err, x.want)
		}
	}
	s.Refuse("no")
	want(t, s, "-1@6 created canceled no")
	create(t, s, CreateOptions{Key: []byte("k"), ID: 7})
	if _, err := s.Create(CreateOptions{Key: []byte("x"), ID: 7}); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("second 7: %v", err)
	}
	want(t, s, "7@6 created")
	create(t, s, CreateOptions{Key: []byte("k"), Start: 3})
	want(t, s, "0@6 created", "0@0 canceled compacted 4")
	create(t, s, CreateOptions{Key: []byte("k"), Start: 4})
	want(t, s, "1@6 created", "1@6 k=2@4 k=3@5 k=4@6")
	create(t, s, CreateOptions{Key: []byte("k"), Start: 8})
	want(t, s, "2@6 created")
	// The one cancelled by compaction holds its id and stands in the way of progress.
	if _, err := s.Create(CreateOptions{Key: []byte("x"), ID: 0}); err != nil {
		t.Fatal(err)
	}
	want(t, s, "3@6 created")
	s.Cancel(2)
	want(t, s, "2@6 canceled")
	if s.RequestProgress() {
		t.Error("told of progress with a watcher cancelled by compaction")
	}
	if !s.Cancel(0) || s.Cancel(0) || s.Cancel(99) {
		t.Error("cancel of 0 must work once, of 99 never")
	}
	want(t, s, "0@6 canceled")
	if !s.RequestProgress() {
		t.Error("not told of progress")
	}
	want(t, s, "-1@6")
	d.put("k", "x")
	if st := d.hub.Stats(); st != (Stats{Streams: 1, Watchers: 3, Pending: 2, Sent: 3}) {
		t.Errorf("figures %+v", st)
	}
	seen := map[int64]bool{}
	got, err := s.Next(within10s(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		seen[got[i].WatchID] = true
	}
	if len(got) != 2 || !seen[1] || !seen[7] {
		t.Errorf("the event went to %v", seen)
	}
	if st := d.hub.Stats(); st.Pending != 0 || st.Sent != 5 {
		t.Errorf("figures %+v", st)
	}
}

// TestFutureStart checks that nothing older than the start is delivered, and no progress told that would be ahead of it.
func TestFutureStart(t *testing.T) {
	d := testDB(t, Options{})
	s := d.open(StreamOptions{})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k"), Start: 4, Progress: true})
	want(t, s, "0@1 created")
	if s.RequestProgress() {
		t.Error("told of revision 1")
	}
	d.put("k", "a") // 2
	if s.RequestProgress() {
		t.Error("told of revision 2")
	}
	d.put("k", "b") // 3
	quiet(t, s)
	if !s.RequestProgress() {
		t.Error("not told of revision 3, the one before the start")
	}
	d.put("k", "c")
	want(t, s, "-1@3", "0@4 k=c@4")
}

// TestDeleteAtCompaction: a delete at the compacted revision is still history.
func TestDeleteAtCompaction(t *testing.T) {
	d := testDB(t, Options{RingBytes: 1})
	for i := range 3 {
		d.put("k", fmt.Sprint(i))
	}
	at := d.del("k") // 5
	d.put("k", "again")
	d.compact(t, at)
	for d.step(100) {
	}
	s := d.open(StreamOptions{})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k"), Start: at, PrevKV: true})
	want(t, s, "0@6 created", "0@6 -k@5 k=again@6")
}

// TestSlowStream checks that a stream that is not read holds up nobody, keeps little in memory, and misses nothing in the end,
// from the ring and from history alike.
func TestSlowStream(t *testing.T) {
	for name, ring := range map[string]int{"ring": 1 << 20, "history": 1} {
		t.Run(name, func(t *testing.T) {
			d := testDB(t, Options{RingBytes: ring})
			slow := d.open(StreamOptions{QueueBytes: 500})
			fast := d.open(StreamOptions{})
			defer slow.Close()
			defer fast.Close()
			for _, s := range []*reading{slow, fast} {
				create(t, s, CreateOptions{Key: []byte("k"), End: []byte{0}})
				want(t, s, "0@1 created")
			}
			const n = 300
			for i := range n {
				d.put("k", fmt.Sprint(i))
				want(t, fast, fmt.Sprintf("0@%d k=%d@%d", i+2, i, i+2))
			}
			if held := slow.queued.Load(); held > 700 {
				t.Errorf("%d bytes wait in the slow stream", held)
			}
			if st := d.hub.Stats(); st.Slow != 1 {
				t.Errorf("figures %+v", st)
			}
			if slow.RequestProgress() {
				t.Error("the slow stream was told of progress")
			}
			ctx, next := within10s(t), int64(2)
			for next < n+2 {
				got, err := slow.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for i := range got {
					evs, _ := got[i].Events()
					for _, e := range evs {
						if e.Kv.ModRevision != next {
							t.Fatalf("revision %d, want %d", e.Kv.ModRevision, next)
						}
						next++
					}
				}
			}
			// It is live again.
			for !slow.RequestProgress() {
				if ctx.Err() != nil {
					t.Fatal("the slow stream does not become live again")
				}
			}
			want(t, slow, fmt.Sprintf("-1@%d", n+1))
			d.put("k", "end")
			want(t, slow, fmt.Sprintf("0@%d k=end@%d", n+2, n+2))
		})
	}
}

// TestOvertaken checks that a lagging watcher whose next revision is compacted is told so.
func TestOvertaken(t *testing.T) {
	d := testDB(t, Options{RingBytes: 1})
	s := d.open(StreamOptions{QueueBytes: 1})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k")})
	create(t, s, CreateOptions{Key: []byte("other")})
	want(t, s, "0@1 created", "1@1 created")
	for i := range 10 {
		d.put("k", fmt.Sprint(i)) // 2 to 11
	}
	d.compact(t, 5)
	want(t, s, "0@2 k=0@2", "0@0 canceled compacted 5")
	d.put("other", "x")
	want(t, s, "1@12 other=x@12")
}

// TestWholeRevisions checks that large revisions are not torn by bounds of any kind.
func TestWholeRevisions(t *testing.T) {
	d := testDB(t, Options{RingBytes: 1, PassBytes: 1})
	var ops []op
	for i := range 50 {
		ops = append(ops, op{key: fmt.Sprintf("k%02d", i), value: strings.Repeat("v", 100)})
	}
	for range 3 {
		d.txn(ops...)
		d.publish()
	}
	s := d.open(StreamOptions{QueueBytes: 1})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k"), End: []byte("l"), Start: 1})
	want(t, s, "0@4 created")
	ctx := within10s(t)
	for rev := int64(2); rev < 5; {
		got, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			evs, _ := got[i].Events()
			if len(evs) != 50 || evs[0].Kv.ModRevision != rev || evs[49].Kv.ModRevision != rev {
				t.Fatalf("%d events from revision %d", len(evs), evs[0].Kv.ModRevision)
			}
			rev++
		}
	}
}

// TestEnds checks every way a stream ends.
func TestEnds(t *testing.T) {
	d := testDB(t, Options{})
	s := d.open(StreamOptions{})
	create(t, s, CreateOptions{Key: []byte("k")})
	cause := errors.New("no leader")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := s.Next(ctx); err != cause {
		t.Errorf("with something waiting: %v", err)
	}
	want(t, s, "0@1 created")
	ctx, cancel = context.WithCancelCause(context.Background())
	go cancel(cause)
	if _, err := s.Next(ctx); err != cause {
		t.Errorf("blocked: %v", err)
	}
	closed := make(chan error)
	go func() {
		_, err := s.Next(context.Background())
		closed <- err
	}()
	s.Close()
	s.Close()
	if err := <-closed; err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
	if _, err := s.Create(CreateOptions{Key: []byte("k")}); err != ErrClosed {
		t.Errorf("create after Close: %v", err)
	}
	s.Refuse("nothing happens")
	if s.Cancel(0) || s.RequestProgress() {
		t.Error("a closed stream has watchers")
	}
	if st := d.hub.Stats(); st != (Stats{}) {
		t.Errorf("figures %+v", st)
	}
	d.put("k", "")

	s = d.open(StreamOptions{})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k")})
	d.hub.Close()
	d.hub.Close()
	if _, err := s.Next(context.Background()); err != ErrHubClosed {
		t.Errorf("after Close of the hub: %v", err)
	}
	late := d.open(StreamOptions{})
	if _, err := late.Next(context.Background()); err != ErrHubClosed {
		t.Errorf("stream opened after Close of the hub: %v", err)
	}
	if _, err := late.Create(CreateOptions{Key: []byte("k")}); err != ErrHubClosed {
		t.Errorf("create after Close of the hub: %v", err)
	}
}

// TestWaitRoom checks that answers nobody reads hold up the one who causes them, until they are read.
func TestWaitRoom(t *testing.T) {
	d := testDB(t, Options{})
	s := d.open(StreamOptions{})
	defer s.Close()
	ctx := within10s(t)
	for range maxAnswers {
		s.WaitRoom(ctx)
		s.Refuse("")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	s.WaitRoom(ended)
	passed := make(chan struct{})
	go func() {
		s.WaitRoom(ctx)
		close(passed)
	}()
	select {
	case <-passed:
		t.Fatal("there was room")
	default:
	}
	if got, err := s.Next(ctx); err != nil || len(got) != maxAnswers {
		t.Fatalf("%d answers, error %v", len(got), err)
	}
	<-passed
	for range maxAnswers {
		s.Refuse("")
	}
	go s.Close()
	s.WaitRoom(ctx)
	if ctx.Err() != nil {
		t.Error("Close did not end the wait")
	}
}

// TestConcurrent lets streams come, watch, fall behind and go while the store is written and compacted, and checks that
// every watcher gets every revision once and in order.
func TestConcurrent(t *testing.T) {
	const last = 3001
	d := testDB(t, Options{RingBytes: 20_000, PassBytes: 5_000})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for round := range 3 {
				if err := follow(ctx, d.hub, i, last); err != nil {
					t.Errorf("reader %d, round %d: %v", i, round, err)
				}
			}
		})
	}
	for rev := int64(1); rev < last; {
		for range 1 + int(rev)%7 {
			if rev < last {
				rev = d.txn(op{key: "k", value: fmt.Sprint(rev)}, op{key: "l"})
			}
		}
		d.publish()
	}
	wg.Wait()
}

// follow watches one key from the beginning, twice on one stream, and checks what comes.
func follow(ctx context.Context, h *Hub, seed int, last int64) error {
	s := h.Open(StreamOptions{QueueBytes: 1 + 500*seed})
	defer s.Close()
	next := map[int64]int64{}
	for range 2 {
		id, err := s.Create(CreateOptions{Key: []byte("k"), Start: 2, PrevKV: seed%2 == 0, Fragment: seed%3 == 0})
		if err != nil {
			return err
		}
		next[id] = 2
	}
	for done := 0; done < 2; {
		s.RequestProgress()
		got, err := s.Next(ctx)
		if err != nil {
			return err
		}
		for i := range got {
			evs, err := got[i].Events()
			if err != nil {
				return err
			}
			for _, e := range evs {
				id := got[i].WatchID
				if e.Kv.ModRevision != next[id] || string(e.Kv.Value) != fmt.Sprint(next[id]-1) {
					return fmt.Errorf("watcher %d: event %v, want revision %d", id, e, next[id])
				}
				if next[id]++; next[id] > last {
					done++
				}
			}
			if r := &got[i]; r.WatchID == NoID && (next[0] <= r.Revision || next[1] <= r.Revision) {
				return fmt.Errorf("told of revision %d at %v", r.Revision, next)
			}
		}
	}
	return nil
}

// TestSwap installs another store that is ahead, as a snapshot from the leader does, and closes the former.
func TestSwap(t *testing.T) {
	d, ahead := testDB(t, Options{}), testDB(t, Options{})
	for i := range 3 {
		d.put("k", fmt.Sprint(i)) // 2 to 4
		ahead.put("k", fmt.Sprint(i))
	}
	s := d.open(StreamOptions{})
	defer s.Close()
	create(t, s, CreateOptions{Key: []byte("k")})
	create(t, s, CreateOptions{Key: []byte("k"), Start: 6})
	create(t, s, CreateOptions{Key: []byte("k"), Start: 9})
	want(t, s, "0@4 created", "1@4 created", "2@4 created")
	for i := 3; i < 6; i++ {
		ahead.put("k", fmt.Sprint(i)) // 5 to 7
	}
	d.hub.Swap(ahead.store)
	d.backend.Close()
	wantSet(t, s, "0@7 k=3@5 k=4@6 k=5@7", "1@7 k=4@6 k=5@7")
	d.store, d.backend = ahead.store, ahead.backend
	d.rev = ahead.rev
	d.put("k", "6")
	d.put("k", "7")
	wantSet(t, s, "0@8 k=6@8", "1@8 k=6@8", "0@9 k=7@9", "1@9 k=7@9", "2@9 k=7@9")
	if st := d.hub.Stats(); st.Slow != 0 || st.Watchers != 3 {
		t.Errorf("figures %+v", st)
	}
	if d.hub.Revision() != 9 {
		t.Errorf("revision %d", d.hub.Revision())
	}
}

// TestSwapCompacted: what the new store has compacted is lost to the watchers, and they are told.
func TestSwapCompacted(t *testing.T) {
	d, ahead := testDB(t, Options{}), testDB(t, Options{})
	d.put("k", "0")
	for i := range 5 {
		ahead.put("k", fmt.Sprint(i)) // 2 to 6
	}
	ahead.compact(t, 5)
	lost, kept := d.open(StreamOptions{}), d.open(StreamOptions{})
	defer lost.Close()
	defer kept.Close()
	create(t, lost, CreateOptions{Key: []byte("k")})
	create(t, kept, CreateOptions{Key: []byte("k"), Start: 5})
	want(t, lost, "0@2 created")
	want(t, kept, "0@2 created")
	d.hub.Swap(ahead.store)
	want(t, lost, "0@0 canceled compacted 5")
	want(t, kept, "0@6 k=3@5 k=4@6")
}

// TestHistoryUnreadable: a stream whose watchers need history that cannot be read ends, instead of going on with a gap.
func TestHistoryUnreadable(t *testing.T) {
	d := testDB(t, Options{RingBytes: 1})
	d.put("k", "0")
	s, other := d.open(StreamOptions{}), d.open(StreamOptions{})
	defer s.Close()
	defer other.Close()
	create(t, other, CreateOptions{Key: []byte("k")})
	want(t, other, "0@2 created")
	d.backend.Close()
	create(t, s, CreateOptions{Key: []byte("k"), Start: 2})
	ctx := within10s(t)
	for {
		if _, err := s.Next(ctx); errors.Is(err, errs.ErrStopped) {
			break
		} else if err != nil {
			t.Fatalf("the stream ended with %v, want %v", err, errs.ErrStopped)
		}
	}
	quiet(t, other)
	if _, err := s.Create(CreateOptions{Key: []byte("k")}); !errors.Is(err, errs.ErrStopped) {
		t.Errorf("create: %v", err)
	}
}

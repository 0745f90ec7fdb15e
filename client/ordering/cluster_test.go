package ordering_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/ordering"
	"github.com/coordd/coordd/embed"
	"github.com/coordd/coordd/internal/testnode"
)

var errCut = errors.New("cut off")

// links is a network from which one member can be cut off.
type links struct {
	mu    sync.Mutex // guards the rest
	cut   string     // the member that is cut off
	conns map[net.Conn][2]string
}

// dialer gives a member its dialer.
func (l *links) dialer(from string, dial testnode.Dial) testnode.Dial {
	return func(ctx context.Context, address string) (net.Conn, error) {
		ends := [2]string{from, strings.TrimSuffix(address, ":2380")}
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.hitsLocked(ends) {
			_ = conn.Close()
			return nil, errCut
		}
		l.conns[conn] = ends
		return conn, nil
	}
}

func (l *links) hitsLocked(ends [2]string) bool {
	return l.cut != "" && (ends[0] == l.cut || ends[1] == l.cut)
}

// cutOff breaks the connections of a member, and those it would make; that of nobody ("") heals the network.
func (l *links) cutOff(member string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = member
	for conn, ends := range l.conns {
		if l.hitsLocked(ends) {
			_ = conn.Close()
			delete(l.conns, conn)
		}
	}
}

// three starts a cluster, and gives a member that does not lead as the last.
func three(t *testing.T) (*links, map[string]*embed.Node, []string) {
	l := &links{conns: map[net.Conn][2]string{}}
	var names []string
	nodes := map[string]*embed.Node{}
	for i, n := range testnode.Cluster(t, 3, l.dialer) {
		names = append(names, testnode.Name(i))
		nodes[names[i]] = n
	}
	if last := nodes[names[2]]; last.Leader() == last.ID() {
		names[0], names[2] = names[2], names[0]
	}
	return l, nodes, names
}

// A member of a real cluster, cut off from the others, lags. A client that has read elsewhere gets nothing old from it, and an answer once
// it has caught up.
func TestLaggingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in virtual time elections do not depend on how quick the machine is
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		links, nodes, names := three(t)
		dial := client.WithDialer(func(ctx context.Context, _, address string) (net.Conn, error) {
			return nodes[strings.TrimSuffix(address, ":2379")].Dialer()(ctx, address)
		})
		lagging := names[2]
		violated := make(chan *ordering.Violation, 1)
		plain, err := client.New(names[:2], dial)
		must(t, err)
		defer plain.Close()
		ordered, err := client.New(names[:2], dial, ordering.Option(ordering.OnViolation(func(_ context.Context, v *ordering.Violation) bool {
			select {
			case violated <- v:
			default:
			}
			return true
		})))
		must(t, err)
		defer ordered.Close()
		_, err = ordered.Put(ctx, "k", "old")
		must(t, err)
		_, err = nodes[lagging].Client().Get(ctx, "k") // until it has that
		must(t, err)

		links.cutOff(lagging)
		_, err = ordered.Put(ctx, "k", "new")
		must(t, err)
		must(t, plain.SetEndpoints(lagging))
		r, err := plain.Get(ctx, "k", client.WithSerializable())
		must(t, err)
		if string(r.Kvs[0].Value) != "old" {
			t.Fatalf("a member that is cut off has %s", r.Kvs)
		}
		must(t, ordered.SetEndpoints(lagging))
		read := make(chan string, 1)
		go func() {
			r, err := ordered.Get(ctx, "k", client.WithSerializable())
			read <- fmt.Sprint(string(r.GetKvs()[0].GetValue()), err)
		}()
		if v := <-violated; v.Endpoint != lagging+":2379" {
			t.Errorf("told of %v", v)
		}
		time.Sleep(5 * time.Second)
		if len(read) > 0 {
			t.Errorf("a member that is cut off was good for %q", <-read)
		}
		links.cutOff("")
		if got := <-read; got != "new<nil>" {
			t.Errorf("read %q", got)
		}
	})
}

// Package load makes the requests that package history can judge: single keys, compare-and-swap, and transactions over a few
// keys, through etcd's client. A [Worker] is one client, for one goroutine; it starts none.
package load

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/coordd/coordd/tests/history"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// callTimeout is how long an answer is waited for.
const callTimeout = 1500 * time.Millisecond

// Worker is one client. It does one request at a time, all in one group.
type Worker struct {
	ID, Group int
	KV        clientv3.KV
	Rand      *rand.Rand
	Begin     time.Time     // of the run
	Values    *atomic.Int64 // the last value that anybody wrote
	Reader    bool          // it only reads
	Pause     time.Duration // between two requests, in the mean

	// Ops are the requests so far.
	Ops []porcupine.Operation

	seen [history.GroupKeys]history.Cell
}

// Run does requests until the context ends.
func (w *Worker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		w.do(w.draw())
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(w.Rand.ExpFloat64() * float64(w.Pause))):
		}
	}
}

// Enter goes on in another group, of which the worker knows nothing.
func (w *Worker) Enter(group int) {
	w.Group, w.seen = group, [history.GroupKeys]history.Cell{}
}

// do does a request and records it. A request that only reads and has no answer says nothing and is left out.
func (w *Worker) do(r history.Request) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	call := time.Since(w.Begin)
	out := send(ctx, w.KV, r)
	ret := time.Since(w.Begin)
	if !out.Known && !r.Writes() {
		return
	}
	w.Ops = append(w.Ops, porcupine.Operation{ClientId: w.ID, Input: r, Output: out, Call: int64(call), Return: int64(ret)})
	for i, s := range branch(r, out) {
		switch s.Kind {
		case history.Put:
			w.seen[s.Key] = history.Cell{Value: s.Value, Revision: out.Revision}
		case history.Delete:
			w.seen[s.Key] = history.Cell{}
		case history.Get:
			w.seen[s.Key] = out.Results[i].Cells[s.Key]
		case history.GetAll:
			w.seen = out.Results[i].Cells
		}
	}
}

// branch are the steps that were done.
func branch(r history.Request, out history.Output) []history.Step {
	switch {
	case !out.Known:
		return nil
	case r.If == nil || out.Succeeded:
		return r.Then
	default:
		return r.Else
	}
}

// draw makes up a request.
func (w *Worker) draw() history.Request {
	a := w.Rand.IntN(history.GroupKeys)
	b := (a + 1 + w.Rand.IntN(history.GroupKeys-1)) % history.GroupKeys
	get, all := history.Step{Kind: history.Get, Key: a}, history.Step{Kind: history.GetAll}
	one := func(s history.Step) history.Request { return history.Request{Group: w.Group, Then: []history.Step{s}} }
	txn := func(then ...history.Step) history.Request {
		return history.Request{Group: w.Group, Then: then, Txn: true}
	}
	swap := func(then ...history.Step) history.Request {
		c := &history.Condition{Key: a, Cell: w.seen[a], ByRevision: w.Rand.IntN(2) == 0}
		return history.Request{Group: w.Group, If: c, Then: then, Else: []history.Step{get}, Txn: true}
	}
	n := w.Rand.IntN(100)
	if w.Reader {
		n = 25 + n/4
	}
	switch {
	case n < 25:
		return one(w.put(a))
	case n < 42:
		return one(get)
	case n < 50:
		return one(all)
	case n < 55:
		return one(history.Step{Kind: history.Delete, Key: a})
	case n < 75:
		return swap(w.put(a))
	case n < 85:
		return swap(w.put(a), w.put(b))
	case n < 90:
		return swap(w.put(b), history.Step{Kind: history.Delete, Key: a})
	case n < 96:
		return txn(w.put(a), all, w.put(b))
	default:
		return txn(get, history.Step{Kind: history.Get, Key: b})
	}
}

func (w *Worker) put(key int) history.Step {
	return history.Step{Kind: history.Put, Key: key, Value: w.Values.Add(1)}
}

// send sends a request and gives what came back.
func send(ctx context.Context, kv clientv3.KV, r history.Request) history.Output {
	if !r.Txn {
		got, err := kv.Do(ctx, operation(r.Group, r.Then[0]))
		if err != nil {
			return history.Output{}
		}
		return plain(r.Then[0], got)
	}
	txn := kv.Txn(ctx)
	if r.If != nil {
		txn = txn.If(compare(r.Group, *r.If))
	}
	got, err := txn.Then(operations(r.Group, r.Then)...).Else(operations(r.Group, r.Else)...).Commit()
	if err != nil {
		return history.Output{}
	}
	out := history.Output{Known: true, Revision: got.Header.Revision, Succeeded: got.Succeeded}
	for i, s := range branch(r, out) {
		var result history.Result
		switch s.Kind {
		case history.Get, history.GetAll:
			result = cells((*clientv3.GetResponse)(got.Responses[i].GetResponseRange()))
		case history.Delete:
			result.Deleted = got.Responses[i].GetResponseDeleteRange().Deleted
		}
		out.Results = append(out.Results, result)
	}
	return out
}

// plain is the output of a call of its own.
func plain(s history.Step, got clientv3.OpResponse) history.Output {
	out := history.Output{Known: true, Succeeded: true, Results: make([]history.Result, 1)}
	switch s.Kind {
	case history.Put:
		out.Revision = got.Put().Header.Revision
	case history.Delete:
		out.Revision, out.Results[0].Deleted = got.Del().Header.Revision, got.Del().Deleted
	default:
		out.Revision, out.Results[0] = got.Get().Header.Revision, cells(got.Get())
	}
	return out
}

// alien stands for what nobody can have written, so that the check fails on it.
const alien = -1

// cells are the keys of an answer.
func cells(got *clientv3.GetResponse) history.Result {
	var r history.Result
	for _, kv := range got.Kvs {
		_, key, err := history.ParseName(string(kv.Key))
		value, err2 := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil || err2 != nil {
			value = alien
		}
		r.Cells[key] = history.Cell{Value: value, Revision: kv.ModRevision}
	}
	return r
}

func operations(group int, steps []history.Step) []clientv3.Op {
	var all []clientv3.Op
	for _, s := range steps {
		all = append(all, operation(group, s))
	}
	return all
}

func operation(group int, s history.Step) clientv3.Op {
	name := history.Name(group, s.Key)
	switch s.Kind {
	case history.Put:
		return clientv3.OpPut(name, strconv.FormatInt(s.Value, 10))
	case history.Get:
		return clientv3.OpGet(name)
	case history.GetAll:
		return clientv3.OpGet(history.Prefix(group), clientv3.WithPrefix())
	default:
		return clientv3.OpDelete(name)
	}
}

func compare(group int, c history.Condition) clientv3.Cmp {
	name := history.Name(group, c.Key)
	switch {
	case c.ByRevision:
		return clientv3.Compare(clientv3.ModRevision(name), "=", c.Revision)
	case c.Value == 0:
		return clientv3.Compare(clientv3.CreateRevision(name), "=", 0)
	default:
		return clientv3.Compare(clientv3.Value(name), "=", strconv.FormatInt(c.Value, 10))
	}
}

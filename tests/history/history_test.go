package history

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// op is an operation of group 0 that was under way from call to ret.
func op(call, ret int64, r Request, out Output) porcupine.Operation {
	return porcupine.Operation{Input: r, Output: out, Call: call, Return: ret}
}

func put(key int, value int64) Request { return Request{Then: []Step{{Put, key, value}}} }

func get(key int) Request { return Request{Then: []Step{{Kind: Get, Key: key}}} }

func del(key int) Request { return Request{Then: []Step{{Kind: Delete, Key: key}}} }

// swap puts a value if the key holds old, and reads it otherwise.
func swap(key int, old, value int64) Request {
	return Request{If: &Condition{Key: key, Cell: Cell{Value: old}}, Then: []Step{{Put, key, value}}, Else: []Step{{Kind: Get, Key: key}}, Txn: true}
}

func wrote(rev int64) Output {
	return Output{Known: true, Revision: rev, Succeeded: true, Results: make([]Result, 2)}
}

func read(rev int64, key int, c Cell) Output {
	var r Result
	r.Cells[key] = c
	return Output{Known: true, Revision: rev, Results: []Result{r}}
}

func deleted(rev, n int64) Output {
	return Output{Known: true, Revision: rev, Results: []Result{{Deleted: n}}}
}

// The checker finds what is wrong, and nothing else.
func TestCheck(t *testing.T) {
	lost := Output{}
	both := Request{Then: []Step{{Put, 0, 5}, {Put, 1, 6}}, Txn: true}
	all := Request{Then: []Step{{Kind: GetAll}}}
	allRead := func(rev int64, cells ...Cell) Output {
		return Output{Known: true, Revision: rev, Results: []Result{{Cells: [GroupKeys]Cell(cells)}}}
	}
	for name, x := range map[string]struct {
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		"reads what was written": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, get(0), read(2, 0, Cell{7, 2}))}, porcupine.Ok},
		"stale read":             {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, put(0, 8), wrote(3)), op(5, 6, get(0), read(2, 0, Cell{7, 2}))}, porcupine.Illegal},
		"stale read with a new revision": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, put(0, 8), wrote(3)),
			op(5, 6, get(0), read(3, 0, Cell{7, 2}))}, porcupine.Illegal},
		"lost write":               {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, get(0), read(2, 0, Cell{}))}, porcupine.Illegal},
		"written, while it reads":  {[]porcupine.Operation{op(1, 9, put(0, 7), wrote(2)), op(2, 3, get(0), read(1, 0, Cell{})), op(4, 5, get(0), read(2, 0, Cell{7, 2}))}, porcupine.Ok},
		"seen, then not any more":  {[]porcupine.Operation{op(1, 9, put(0, 7), wrote(2)), op(2, 3, get(0), read(2, 0, Cell{7, 2})), op(4, 5, get(0), read(2, 0, Cell{}))}, porcupine.Illegal},
		"revisions fall":           {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(5)), op(3, 4, put(1, 8), wrote(4))}, porcupine.Illegal},
		"one revision, two writes": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(5)), op(3, 4, put(1, 8), wrote(5))}, porcupine.Illegal},
		"two win one swap": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 9, swap(0, 7, 8), wrote(3)), op(3, 9, swap(0, 7, 9), wrote(4))},
			porcupine.Illegal},
		"one wins": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 9, swap(0, 7, 8), wrote(3)), op(3, 9, swap(0, 7, 9), read(3, 0, Cell{8, 3}))},
			porcupine.Ok},
		"half a transaction":     {[]porcupine.Operation{op(1, 2, both, wrote(2)), op(3, 4, all, allRead(2, Cell{5, 2}, Cell{}, Cell{}))}, porcupine.Illegal},
		"all of a transaction":   {[]porcupine.Operation{op(1, 2, both, wrote(2)), op(3, 4, all, allRead(2, Cell{5, 2}, Cell{6, 2}, Cell{}))}, porcupine.Ok},
		"deleted":                {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, del(0), deleted(3, 1)), op(5, 6, del(0), deleted(3, 0))}, porcupine.Ok},
		"deleted twice":          {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, del(0), deleted(3, 1)), op(5, 6, del(0), deleted(4, 1))}, porcupine.Illegal},
		"no answer, applied":     {[]porcupine.Operation{op(1, 2, put(0, 7), lost), op(3, 4, get(0), read(2, 0, Cell{7, 2}))}, porcupine.Ok},
		"no answer, not applied": {[]porcupine.Operation{op(1, 2, put(0, 7), lost), op(3, 4, get(0), read(1, 0, Cell{}))}, porcupine.Ok},
		"no answer, late":        {[]porcupine.Operation{op(1, 2, put(0, 7), lost), op(3, 4, get(0), read(1, 0, Cell{})), op(5, 6, get(0), read(2, 0, Cell{7, 2}))}, porcupine.Ok},
		"no answer, but before its call": {[]porcupine.Operation{op(1, 2, get(0), read(2, 0, Cell{7, 2})), op(3, 4, put(0, 7), lost)},
			porcupine.Illegal},
		"no answer, undone": {[]porcupine.Operation{op(1, 2, put(0, 7), lost), op(3, 4, get(0), read(2, 0, Cell{7, 2})), op(5, 6, get(0), read(2, 0, Cell{}))},
			porcupine.Illegal},
		"applied at two revisions": {[]porcupine.Operation{op(1, 2, put(0, 7), lost), op(3, 4, get(0), read(2, 0, Cell{7, 2})), op(5, 6, get(0), read(3, 0, Cell{7, 3}))},
			porcupine.Illegal},
		"no answer to a delete": {[]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, del(0), lost), op(5, 6, get(0), read(3, 0, Cell{}))},
			porcupine.Ok},
	} {
		got := Check(x.ops, time.Minute)
		if len(got) != 1 || got[0].Result != x.want {
			t.Errorf("%s: %v, want %s", name, got, x.want)
		}
		if err := porcupine.VisualizePath(Model(), got[0].Info, filepath.Join(t.TempDir(), "x.html")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Groups are checked one by one.
func TestCheckGroups(t *testing.T) {
	bad := get(0)
	bad.Group = 4
	got := Check([]porcupine.Operation{op(1, 2, put(0, 7), wrote(2)), op(3, 4, bad, read(2, 0, Cell{7, 2}))}, time.Minute)
	if len(got) != 2 || got[0].Result != porcupine.Ok || got[1].Group != 4 || got[1].Result != porcupine.Illegal {
		t.Errorf("%v", got)
	}
}

func TestResolve(t *testing.T) {
	ops := []porcupine.Operation{
		op(1, 2, put(0, 7), Output{}), op(1, 2, put(0, 8), Output{}), op(1, 2, swap(1, 0, 9), Output{}),
		op(1, 2, del(2), Output{}), op(1, 2, del(1), Output{}), op(1, 2, del(0), deleted(4, 1)), op(1, 2, get(0), read(2, 0, Cell{7, 2})),
	}
	events := []Event{{2, 0, 0, 7}, {3, 0, 1, 9}, {4, 0, 0, 0}, {5, 0, 2, 0}}
	got, err := Resolve(ops, events)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, o := range got {
		text = append(text, Model().DescribeOperation(o.Input, o.Output))
	}
	want := `put k0=7 → no answer, applied @2
if k1=0 then put k1=9 else get k1 → no answer, applied @3
delete k2 → no answer
delete k0 → 1 deleted @4
get k0 → k0={7 2} @2`
	if s := strings.Join(text, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if _, err := Resolve(ops, append(events, Event{6, 0, 0, 7})); err == nil {
		t.Error("a value written twice is not noticed")
	}
	// A request found to have been applied must have had its condition then.
	late := []porcupine.Operation{op(1, 2, put(1, 6), wrote(2)), op(1, 2, swap(1, 0, 9), Output{Revision: 3})}
	if got := Check(late, time.Minute); got[0].Result != porcupine.Illegal {
		t.Errorf("a swap whose condition never held passed: %v", got[0].Result)
	}
}

func TestCheckEvents(t *testing.T) {
	both := Request{Then: []Step{{Put, 0, 5}, {Kind: Delete, Key: 1}}, Txn: true}
	bothOut := Output{Known: true, Revision: 4, Results: []Result{{}, {Deleted: 1}}}
	ops := []porcupine.Operation{
		op(1, 2, put(1, 7), wrote(2)), op(1, 2, put(0, 8), Output{}), op(1, 2, both, bothOut), op(1, 2, del(2), deleted(4, 0)),
		op(1, 2, get(1), read(2, 1, Cell{7, 2})),
	}
	good := []Event{{2, 0, 1, 7}, {3, 0, 0, 8}, {4, 0, 0, 5}, {4, 0, 1, 0}}
	if err := CheckEvents(ops, good, 2, 4); err != nil {
		t.Error(err)
	}
	for name, x := range map[string]struct {
		events []Event
		want   string
	}{
		"missing":    {good[1:], "has revision 3 where 2 is due"},
		"gap":        {[]Event{good[0], good[2], good[3]}, "where 3 is due"},
		"end":        {good[:2], "end before revision 4"},
		"twice":      {append([]Event{good[0]}, good...), "has revision 2 where 3 is due"},
		"order":      {[]Event{good[1], good[0], good[2], good[3]}, "where 2 is due"},
		"half a txn": {good[:3], "acknowledged at revision 4"},
		"other":      {[]Event{{2, 0, 1, 9}, good[1], good[2], good[3]}, "acknowledged at revision 2"},
		"unasked":    {[]Event{good[0], {3, 0, 2, 0}, good[2], good[3]}, "nobody asked"},
	} {
		if err := CheckEvents(ops, x.events, 2, 4); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	if err := CheckEvents(append(ops, op(1, 2, put(2, 3), wrote(2))), good, 2, 4); err == nil || !strings.Contains(err.Error(), "two requests") {
		t.Errorf("one revision acknowledged twice: %v", err)
	}
}

func TestName(t *testing.T) {
	if g, k, err := ParseName(Name(12, 2)); err != nil || g != 12 || k != 2 {
		t.Errorf("%d %d %v", g, k, err)
	}
	for _, bad := range []string{"", "history/00012/3", "history/12/1", "other/00012/1", "history/00012/1x"} {
		if _, _, err := ParseName(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

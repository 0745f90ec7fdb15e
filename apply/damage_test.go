package apply_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/api/requestpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/apply"
	"github.com/coordd/coordd/mvcc"
	"github.com/coordd/coordd/mvcc/backend"
)

// A row that a write depends on and that the file has lost ends the machine, not the process. Nothing of that entry
// reaches the file.
func TestDamagedFileEndsTheMachine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	m, err := apply.Open(path, apply.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(entryOf(t, 1, 1, put("k", "v", 0)), nil)
	m.Publish()
	m.Backend.DeleteRows([]backend.RowID{{Revision: backend.Revision{Main: 2}}})
	if err := m.Commit(true); err != nil {
		t.Fatal(err)
	}
	txn := &requestpb.InternalRaftRequest{Txn: &rpcpb.TxnRequest{Success: []*rpcpb.RequestOp{
		{Request: &rpcpb.RequestOp_RequestPut{RequestPut: put("other", "x", 0).Put}},
		{Request: &rpcpb.RequestOp_RequestPut{RequestPut: &rpcpb.PutRequest{Key: []byte("k"), IgnoreValue: true}}},
	}}}
	m.Apply(entryOf(t, 2, 1, txn), func(uint64) bool { return true })
	var damage mvcc.Damage
	if err := m.Err(); !errors.As(err, &damage) || !strings.Contains(err.Error(), "remove this member") {
		t.Fatalf("after the loss of a row: %v", err)
	}
	if err := m.Commit(true); !errors.As(err, &damage) {
		t.Errorf("a damaged machine commits: %v", err)
	}
	if err := m.Close(); err != nil { // waits for views that are held
		t.Error(err)
	}
	if pos, err := backend.PositionOf(path); err != nil || pos.Index != 1 {
		t.Errorf("the file stands at %v, %v", pos, err)
	}
}

package history

import (
	"fmt"
	"strconv"
	"strings"
)

// GroupKeys is the number of keys in a group.
const GroupKeys = 3

// Cell is what a key holds. The zero Cell is that of a key that does not exist; values are above 0.
type Cell struct {
	Value    int64
	Revision int64 // of the last change, or Unknown
}

// Unknown is the revision of a change whose revision nobody has learned.
const Unknown = -1

// Kind is what a step does.
type Kind int

const (
	Put    Kind = iota // writes Value to Key
	Get                // reads Key
	GetAll             // reads all keys of the group
	Delete             // deletes Key
)

// Step is one operation of a request.
type Step struct {
	Kind  Kind
	Key   int   // in the group
	Value int64 // of a put
}

// Condition is that a key holds a value, 0: that it does not exist.
type Condition struct {
	Key int
	Cell
	// ByRevision: the server is asked to compare the revision of the last change, not the value. Since values are
	// unique that comes to the same.
	ByRevision bool
}

// Request is one transaction in a group, or with one step and no condition perhaps a plain call.
type Request struct {
	Group      int
	If         *Condition // nil: none
	Then, Else []Step
	Txn        bool // sent as a transaction
}

// Writes tells whether the request could change anything.
func (r Request) Writes() bool {
	for _, s := range append(append([]Step(nil), r.Then...), r.Else...) {
		if s.Kind == Put || s.Kind == Delete {
			return true
		}
	}
	return false
}

// Result is what a step gave.
type Result struct {
	Cells   [GroupKeys]Cell // of Get and GetAll; a Get fills that of its key
	Deleted int64           // of Delete
}

// Output is what the client got.
type Output struct {
	// Known: there was an answer. If not, nothing but perhaps Revision is set.
	Known bool
	// Revision is that of the answer's header; without an answer, the revision at which the request was applied, as Resolve has
	// found out, or 0.
	Revision  int64
	Succeeded bool // the condition held
	Results   []Result
}

// branch are the steps that were done, for a known output.
func (o Output) branch(r Request) []Step {
	if r.If == nil || o.Succeeded {
		return r.Then
	}
	return r.Else
}

// Name is the key's name in the store.
func Name(group, key int) string { return fmt.Sprintf("%s%d", Prefix(group), key) }

// Prefix is what the names of a group's keys begin with.
func Prefix(group int) string { return fmt.Sprintf("%s%05d/", Root, group) }

// Root is what the names of all keys begin with.
const Root = "history/"

// ParseName is the reverse of Name.
func ParseName(name string) (group, key int, err error) {
	if _, err := fmt.Sscanf(name, Root+"%05d/%d", &group, &key); err != nil || Name(group, key) != name || key >= GroupKeys {
		return 0, 0, fmt.Errorf("%q is not a key of a history", name)
	}
	return group, key, nil
}

// String is the request for people.
func (r Request) String() string {
	var b strings.Builder
	if r.If != nil {
		what := ""
		if r.If.ByRevision {
			what = fmt.Sprintf(" (by revision %d)", r.If.Revision)
		}
		fmt.Fprintf(&b, "if k%d=%d%s then ", r.If.Key, r.If.Value, what)
	}
	steps(&b, r.Then)
	if len(r.Else) > 0 {
		b.WriteString(" else ")
		steps(&b, r.Else)
	}
	return b.String()
}

func steps(b *strings.Builder, all []Step) {
	for i, s := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		switch s.Kind {
		case Put:
			fmt.Fprintf(b, "put k%d=%d", s.Key, s.Value)
		case Get:
			fmt.Fprintf(b, "get k%d", s.Key)
		case GetAll:
			b.WriteString("get all")
		case Delete:
			fmt.Fprintf(b, "delete k%d", s.Key)
		}
	}
}

// describe is the output of a request for people.
func (o Output) describe(r Request) string {
	if !o.Known {
		if o.Revision > 0 {
			return fmt.Sprintf("no answer, applied @%d", o.Revision)
		}
		return "no answer"
	}
	var b strings.Builder
	if r.If != nil {
		b.WriteString(strconv.FormatBool(o.Succeeded) + " ")
	}
	for i, s := range o.branch(r) {
		switch s.Kind {
		case Get:
			fmt.Fprintf(&b, "k%d=%v ", s.Key, o.Results[i].Cells[s.Key])
		case GetAll:
			fmt.Fprintf(&b, "%v ", o.Results[i].Cells)
		case Delete:
			fmt.Fprintf(&b, "%d deleted ", o.Results[i].Deleted)
		}
	}
	return fmt.Sprintf("%s@%d", &b, o.Revision)
}

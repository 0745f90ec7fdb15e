package ctl

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
)

// printer writes answers in the format asked for.
type printer struct {
	out, errOut io.Writer
	format      string
	hex         bool
}

// knownFormat tells whether a format exists.
func knownFormat(format string) bool {
	return slices.Contains([]string{"simple", "json", "fields", "table", "protobuf"}, format)
}

// view is an answer with its forms. A nil form does not exist, except that simple and fields stand in for each other.
type view struct {
	simple func(w *lines)
	fields func(w *lines)
	// json is what is encoded for JSON.
	json any
	// message is what is encoded for protobuf.
	message proto.Message
	// table gives the rows, the first being the head.
	table func() [][]string
}

// lines collects text, since a write of half an answer helps nobody.
type lines struct {
	strings.Builder
	hex bool
}

// line adds a line.
func (l *lines) line(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }

// field adds a field.
func (l *lines) field(name string, value any) { l.line("%q : %v", name, value) }

// id adds a field with an id, in hex if asked for.
func (l *lines) id(name string, value uint64) {
	if l.hex {
		l.line("%q : %x", name, value)
		return
	}
	l.line("%q : %d", name, value)
}

// text gives bytes as they are, or in hex if asked for.
func (l *lines) text(b []byte) string {
	if !l.hex {
		return string(b)
	}
	var out strings.Builder
	for _, c := range b {
		fmt.Fprintf(&out, `\x%02x`, c)
	}
	return out.String()
}

// quoted gives bytes in quotes.
func (l *lines) quoted(b []byte) string {
	if l.hex {
		return `"` + l.text(b) + `"`
	}
	return fmt.Sprintf("%q", b)
}

// show writes a view.
func (p *printer) show(v view) error {
	w := &lines{hex: p.hex}
	switch {
	case p.format == "json" && v.json != nil:
		b, err := json.Marshal(v.json)
		if err != nil {
			return fmt.Errorf("cannot encode the answer as JSON: %w", err)
		}
		w.line("%s", b)
	case p.format == "protobuf" && v.message != nil:
		b, err := proto.Marshal(v.message)
		if err != nil {
			return fmt.Errorf("cannot encode the answer: %w", err)
		}
		w.Write(b)
	case p.format == "table" && v.table != nil:
		drawTable(w, v.table())
	case p.format == "fields" && v.fields != nil:
		v.fields(w)
	case p.format == "simple" && v.simple != nil:
		v.simple(w)
	default:
		return fail(exitFeature, "%s not supported as output format", p.format)
	}
	if _, err := io.WriteString(p.out, w.String()); err != nil {
		return fail(exitIO, "cannot write the output: %w", err)
	}
	return nil
}

// header adds the fields of a header.
func (l *lines) header(h *rpcpb.ResponseHeader) {
	l.id("ClusterID", h.GetClusterId())
	l.id("MemberID", h.GetMemberId())
	if h.GetRevision() > 0 {
		l.field("Revision", h.GetRevision())
	}
	l.field("RaftTerm", h.GetRaftTerm())
}

// kvFields adds the fields of a pair, with a prefix to their names.
func (l *lines) kvFields(prefix string, kv *kvpb.KeyValue) {
	l.field(prefix+"Key", l.quoted(kv.GetKey()))
	l.field(prefix+"CreateRevision", kv.GetCreateRevision())
	l.field(prefix+"ModRevision", kv.GetModRevision())
	l.field(prefix+"Version", kv.GetVersion())
	l.field(prefix+"Value", l.quoted(kv.GetValue()))
	if l.hex {
		l.line("%q : %x", prefix+"Lease", kv.GetLease())
	} else {
		l.field(prefix+"Lease", kv.GetLease())
	}
}

// kv adds the lines of a pair.
func (l *lines) kv(kv *kvpb.KeyValue, valueOnly bool) {
	if !valueOnly {
		l.line("%s", l.text(kv.GetKey()))
	}
	l.line("%s", l.text(kv.GetValue()))
}

// drawTable draws rows, the first being the head.
func drawTable(w *lines, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	rule := "+"
	for _, n := range widths {
		rule += strings.Repeat("-", n+2) + "+"
	}
	w.line("%s", rule)
	for at, row := range rows {
		text := "|"
		for i, cell := range row {
			space := widths[i] - len([]rune(cell))
			before := space
			if at == 0 {
				cell, before = strings.ToUpper(cell), space/2
			}
			text += " " + strings.Repeat(" ", before) + cell + strings.Repeat(" ", space-before) + " |"
		}
		w.line("%s", text)
		if at == 0 {
			w.line("%s", rule)
		}
	}
	w.line("%s", rule)
}

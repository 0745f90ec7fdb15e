package ctl

import (
	"bufio"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// text gives a message in one stable line.
func text(op client.Op) string {
	b, _ := prototext.MarshalOptions{}.Marshal(op.Request())
	return strings.Join(strings.Fields(string(b)), " ")
}

// condition gives a condition as the message it becomes.
func condition(c client.Cmp) *rpcpb.Compare {
	return client.OpTxn([]client.Cmp{c}, nil, nil).Request().GetRequestTxn().Compare[0]
}

func TestParseCompare(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want client.Cmp
	}{
		{`mod("k") = "1"`, client.ModRevision("k").Equal(1)},
		{`m("k")>"1"`, client.ModRevision("k").Greater(1)},
		{`c("a b") != "7"`, client.CreateRevision("a b").NotEqual(7)},
		{`create(k) < 7`, client.CreateRevision("k").Less(7)},
		{`ver ( "k" ) = 0`, client.Version("k").Equal(0)},
		{`version("\x00\n") = "2"`, client.Version("\x00\n").Equal(2)},
		{`val("k") = "say \"hi\""`, client.Value("k").Equal(`say "hi"`)},
		{`value("k)") < ""`, client.Value("k)").Less("")},
		{`lease("k") = "ff"`, client.LeaseOf("k").Equal(255)},
	} {
		got, err := parseCompare(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if g, w := condition(got).String(), condition(tt.want).String(); g != w {
			t.Errorf("%s: got %s, want %s", tt.in, g, w)
		}
	}
	for in, want := range map[string]string{
		`mod`:                "form",
		`mod("k"`:            "no )",
		`mod("k) = "1"`:      "no )",
		`mod("k\q") = "1"`:   "quotes",
		`mod("k") "1"`:       "operator",
		`mod("k") = `:        "missing",
		`mod("k") = "x"`:     "no number",
		`mod("k") = "1" "2"`: "follow",
		`size("k") = "1"`:    "unknown target",
		`lease("k") = "zz"`:  "no number",
		`mod() = "1"`:        "missing",
	} {
		if _, err := parseCompare(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", in, err, want)
		}
	}
}

// No input makes the parsers panic, and what they accept is a whole condition.
func FuzzParseCompare(f *testing.F) {
	for _, s := range []string{`mod("k") = "1"`, `val(k)<x`, `lease("`, `c() = `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := parseCompare(s); err == nil && len(condition(c).Key) == 0 && !strings.Contains(s, `""`) {
			t.Fatalf("%q was accepted without a key", s)
		}
		_, _ = parseOp(s + " x")
	})
}

func TestParseOp(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want client.Op
	}{
		{`get k`, client.OpGet("k")},
		{`get --prefix k --limit=3`, client.OpGet("k", client.WithPrefix(), client.WithLimit(3))},
		{`get a b`, client.OpGet("a", client.WithRange("b"))},
		{`put k "a b"`, client.OpPut("k", "a b")},
		{`put k 'a "b"'`, client.OpPut("k", `a "b"`)},
		{`put k "" --lease=1f`, client.OpPut("k", "", client.WithLease(31))},
		{`put -- -k -v`, client.OpPut("-k", "-v")},
		{`put k --ignore-value`, client.OpPut("k", "", client.WithIgnoreValue())},
		{`del k --prev-kv`, client.OpDelete("k", client.WithPrevKV())},
		{`del --from-key k`, client.OpDelete("k", client.WithFromKey())},
	} {
		got, err := parseOp(tt.in)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if text(got) != text(tt.want) {
			t.Errorf("%s: got %s, want %s", tt.in, text(got), text(tt.want))
		}
	}
	for _, in := range []string{`look k`, `get`, `get a b c`, `put k`, `put k v w`, `put k v --ignore-value`, `get --nope k`, `put "k v`, `del --prefix a b`, `put k v --lease=xyz`} {
		if _, err := parseOp(in); err == nil {
			t.Errorf("%s: accepted", in)
		}
	}
}

func TestSplitWords(t *testing.T) {
	got, err := splitWords(`  a "b c"	'd "e' "\x41" f`)
	if want := []string{"a", "b c", `d "e`, "A", "f"}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
}

// The parts of a script are told apart by empty lines, and errors name the line.
func TestScript(t *testing.T) {
	for in, want := range map[string][3]int{
		"":                                  {0, 0, 0},
		"\n\n\n":                            {0, 0, 0},
		"ver(a) = 0\n\nput a b\n\nget a\n":  {1, 1, 1},
		"ver(a) = 0\nver(b) = 0\n\nput a b": {2, 1, 0},
		"\nput a b\nget c\n\ndel a\ndel b\n\nignored": {0, 2, 2},
	} {
		s := &script{in: bufio.NewReader(strings.NewReader(in))}
		c, then, otherwise, err := s.read()
		if got := [3]int{len(c), len(then), len(otherwise)}; err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", in, got, err, want)
		}
	}
	_, _, _, err := (&script{in: bufio.NewReader(strings.NewReader("\nput a b\nfly away\n"))}).read()
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != exitInput || !strings.Contains(err.Error(), "line 3") {
		t.Fatalf("got %v", err)
	}
}

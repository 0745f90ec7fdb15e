package client

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseEndpoint(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want address
		err  string
	}{
		{"h:1", address{"tcp", "h:1", "h:1", byOption}, ""},
		{"h", address{"tcp", "h:2379", "h:2379", byOption}, ""},
		{"127.0.0.1", address{"tcp", "127.0.0.1:2379", "127.0.0.1:2379", byOption}, ""},
		{"[::1]:80", address{"tcp", "[::1]:80", "[::1]:80", byOption}, ""},
		{"::1", address{"tcp", "[::1]:2379", "[::1]:2379", byOption}, ""},
		{"[::1]", address{"tcp", "[::1]:2379", "[::1]:2379", byOption}, ""},
		{"http://h:1", address{"tcp", "h:1", "h:1", inClear}, ""},
		{"http://h:1/", address{"tcp", "h:1", "h:1", inClear}, ""},
		{"https://h", address{"tcp", "h:2379", "h:2379", encrypted}, ""},
		{"unix:///a/b", address{"unix", "/a/b", "localhost", inClear}, ""},
		{"unix:a", address{"unix", "a", "localhost", inClear}, ""},
		{"unixs://a:0", address{"unix", "a:0", "localhost", encrypted}, ""},
		{"", address{}, "not of the form"},
		{":1", address{}, "missing"},
		{"h:", address{}, "missing"},
		{"a:b:c", address{}, "not of the form"},
		{"h/x", address{}, "not of the form"},
		{"http://", address{}, "not of the form"},
		{"http://h/x", address{}, "path"},
		{"ftp://h", address{}, "unknown scheme"},
		{"http://h:%zz", address{}, "no URL"},
		{"unix:", address{}, "names no socket"},
	} {
		got, err := parseEndpoint(tt.in)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%q: got %+v, %v", tt.in, got, err)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), tt.in)):
			t.Errorf("%q: got %+v, %v; want an error with %q", tt.in, got, err, tt.err)
		}
	}
}

// No endpoint makes the parser panic, and what it accepts can be dialled.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"h:1", "http://[::1]:2", "unix://x", "https://", "a:b:c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseEndpoint(s)
		if (err == nil) != (a.dial != "" && a.authority != "") {
			t.Fatalf("%q: %+v, %v", s, a, err)
		}
	})
}

// A key is below the end of a prefix exactly if it has the prefix, or sorts before it.
func TestPrefixEnd(t *testing.T) {
	byteOf := rapid.SampledFrom([]byte{0, 1, 'a', 0xfe, 0xff})
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(byteOf, 1, 4).Draw(t, "prefix")
		key := rapid.SliceOfN(byteOf, 1, 6).Draw(t, "key")
		end := PrefixEnd(prefix)
		in := bytes.Compare(key, prefix) >= 0 && (bytes.Equal(end, []byte{0}) || bytes.Compare(key, end) < 0)
		if in != bytes.HasPrefix(key, prefix) {
			t.Fatalf("end %q", end)
		}
	})
}

func TestRetryPause(t *testing.T) {
	p := RetryPolicy{Base: 10 * time.Millisecond, Max: time.Second, PerTry: time.Second}
	for failures := range 200 {
		got := p.pause(failures, 3)
		want := time.Duration(0)
		if failures >= 3 {
			want = p.Max
			if failures < 10 {
				want = min(p.Max, p.Base<<(failures-3))
			}
		}
		if got < want/2 || got > want {
			t.Fatalf("pause after %d failures is %v, want %v to %v", failures, got, want/2, want)
		}
	}
	if a, b := p.perTry(0, 3), p.perTry(3, 3); a != time.Second || b != 2*time.Second {
		t.Fatalf("bounds %v and %v", a, b)
	}
}

func TestOptionErrors(t *testing.T) {
	for name, opt := range map[string]Option{
		"dial timeout":  WithDialTimeout(0),
		"keepalive":     WithKeepAlive(time.Second, -1),
		"send bytes":    WithMaxSendBytes(0),
		"receive bytes": WithMaxReceiveBytes(-1),
		"buffer":        WithWatchBufferBytes(0),
		"retry":         WithRetry(RetryPolicy{}),
		"sync":          WithAutoSync(0),
		"tls":           WithTLS(nil),
		"dialer":        WithDialer(nil),
		"user":          WithCredentials("", "x"),
	} {
		if _, err := New([]string{"h"}, opt); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New([]string{"h"}, WithCredentials("u", "p"), WithToken("t")); err == nil {
		t.Error("a user and a token: accepted")
	}
	if _, err := New(nil); err == nil {
		t.Error("no endpoints: accepted")
	}
	if _, err := NewFromConn(nil); err == nil {
		t.Error("no connection: accepted")
	}
}

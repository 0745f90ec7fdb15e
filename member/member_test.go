package member

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/api/errs"
)

// The ids of an etcd server started with default flags, as its logs and many a manual show them.
func TestIDsAreThoseOfEtcd(t *testing.T) {
	id := BootstrapID([]string{"http://localhost:2380"}, "etcd-cluster")
	if id.String() != "8e9e05c52164694d" {
		t.Errorf("member id %s", id)
	}
	if c := ClusterID([]ID{id}); c.String() != "cdf818194e3a8c32" {
		t.Errorf("cluster id %s", c)
	}
}

func TestIDsDoNotDependOnOrder(t *testing.T) {
	a, b := "http://a:1", "http://b:1"
	if BootstrapID([]string{a, b}, "t") != BootstrapID([]string{b, a}, "t") {
		t.Error("member id depends on the order of URLs")
	}
	if ClusterID([]ID{3, 1, 2}) != ClusterID([]ID{2, 3, 1}) {
		t.Error("cluster id depends on the order of members")
	}
	if AddedID([]string{a}, 1) == AddedID([]string{a}, 2) {
		t.Error("the time does not count")
	}
	if AddedID([]string{a}, 17) != BootstrapID([]string{a}, "17") {
		t.Error("the time is not hashed in decimal")
	}
}

func TestParseID(t *testing.T) {
	for _, id := range []ID{0, 1, 0xabc, 0xffffffffffffffff} {
		got, err := ParseID(id.String())
		if err != nil || got != id {
			t.Errorf("%s: got %s, %v", id, got, err)
		}
	}
	for _, s := range []string{"", "xyz", "-1", "10000000000000000"} {
		if _, err := ParseID(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
}

func TestParsePeerURLs(t *testing.T) {
	good := [][]string{
		{"http://10.0.0.1:2380"}, {"https://[::1]:2380"}, {"unix://127.0.0.1:2100516"}, {"unixs:///run/peer.sock"},
		{"http://b:1", " http://a:1 "},
	}
	for _, raw := range good {
		got, err := ParsePeerURLs(raw)
		if err != nil || len(got) != len(raw) || !slices.IsSorted(got) {
			t.Errorf("%q: got %q, %v", raw, got, err)
		}
	}
	bad := [][]string{
		nil, {""}, {"localhost:2380"}, {"http://localhost"}, {"http://:2380"}, {"http://a:1/path"}, {"http://a:"},
		{"ftp://a:1"}, {"http://a:1?x=1"}, {"http://u@a:1"}, {"unix://"}, {"http://a:1", "::"}, {"http://a:1\x7f"},
	}
	for _, raw := range bad {
		if got, err := ParsePeerURLs(raw); !errors.Is(err, errs.ErrMemberBadURLs) {
			t.Errorf("%q: got %q, %v", raw, got, err)
		}
	}
}

func TestParseInitialCluster(t *testing.T) {
	got, err := ParseInitialCluster("n1=http://a:2,n2=http://b:1,n1=http://a:1", "tok")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].ID >= got[1].ID {
		t.Fatalf("got %+v", got)
	}
	i := slices.IndexFunc(got, func(m Member) bool { return m.Name == "n1" })
	want := Member{ID: BootstrapID([]string{"http://a:1", "http://a:2"}, "tok"), Name: "n1", PeerURLs: []string{"http://a:1", "http://a:2"}}
	if i < 0 || got[i].ID != want.ID || !slices.Equal(got[i].PeerURLs, want.PeerURLs) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for s, fragment := range map[string]string{
		"":                            "name=url",
		"n1":                          "name=url",
		"=http://a:1":                 "name=url",
		"n1=":                         "name=url",
		"n1=http://a":                 "host:port",
		"n1=http://a:1,n2=http://a:1": "each member needs its own",
		"n1=http://a:1,":              "name=url",
	} {
		if _, err := ParseInitialCluster(s, "tok"); err == nil || !strings.Contains(err.Error(), fragment) {
			t.Errorf("%q: got %v", s, err)
		}
	}
}

func TestMemberJSON(t *testing.T) {
	tests := []struct {
		m    Member
		want string
	}{
		{
			Member{ID: 10276657743932975437, PeerURLs: []string{"http://localhost:2380"}, Name: "default", ClientURLs: []string{"http://localhost:2379"}},
			`{"id":10276657743932975437,"peerURLs":["http://localhost:2380"],"name":"default","clientURLs":["http://localhost:2379"]}`,
		},
		{Member{ID: 7, PeerURLs: []string{"http://a:1"}, IsLearner: true}, `{"id":7,"peerURLs":["http://a:1"],"isLearner":true}`},
	}
	for _, tc := range tests {
		got, err := json.Marshal(tc.m)
		if err != nil || string(got) != tc.want {
			t.Errorf("got %s, %v", got, err)
		}
	}
	c := Change{Member: Member{ID: 7, PeerURLs: []string{"u"}}, IsPromote: true}
	if got := string(mustJSON(c)); got != `{"id":7,"peerURLs":["u"],"isPromote":true}` {
		t.Errorf("got %s", got)
	}
}

// voters builds a list of voters, of which the first started have run.
func voters(n, started int) []*Member {
	var list []*Member
	for i := range n {
		m := &Member{ID: ID(i + 1)}
		if i < started {
			m.Name = "n"
		}
		list = append(list, m)
	}
	return list
}

func TestStrictStarted(t *testing.T) {
	learner := &Member{ID: 99, IsLearner: true, Name: "l"}
	tests := []struct {
		name string
		got  error
		ok   bool
	}{
		{"add to one started", CheckStartedAdd(voters(1, 1)), true},
		{"add to one not started", CheckStartedAdd(voters(1, 0)), false},
		{"add to two started", CheckStartedAdd(voters(2, 2)), true},
		{"add to two, one started", CheckStartedAdd(voters(2, 1)), false},
		{"add to three, two started", CheckStartedAdd(voters(3, 2)), false},
		{"add to four, three started", CheckStartedAdd(voters(4, 3)), true},
		{"started learners do not count", CheckStartedAdd(append(voters(2, 1), learner)), false},
		{"promote beside one started", CheckStartedPromote(append(voters(1, 1), learner)), true},
		{"promote beside one not started", CheckStartedPromote(append(voters(1, 0), learner)), false},
		{"promote beside three, one started", CheckStartedPromote(voters(3, 1)), false},
		{"promote beside three, two started", CheckStartedPromote(voters(3, 2)), true},
		{"remove the only one", CheckStartedRemove(voters(1, 1), 1), false},
		{"remove one of two started", CheckStartedRemove(voters(2, 2), 2), true},
		{"remove the started one of two", CheckStartedRemove(voters(2, 1), 1), false},
		{"remove the other one of two", CheckStartedRemove(voters(2, 1), 2), true},
		{"remove a started one of four, two started", CheckStartedRemove(voters(4, 2), 1), false},
		{"remove a learner", CheckStartedRemove(append(voters(3, 1), learner), 99), true},
		{"remove nobody", CheckStartedRemove(voters(1, 0), 5), true},
	}
	for _, tc := range tests {
		if (tc.got == nil) != tc.ok || tc.got != nil && !errors.Is(tc.got, errs.ErrMemberNotEnoughStarted) {
			t.Errorf("%s: got %v", tc.name, tc.got)
		}
	}
}

func TestStrictConnected(t *testing.T) {
	tests := []struct {
		name string
		got  error
		ok   bool
	}{
		{"add to one", CheckConnectedAdd(1, 1), true},
		{"add, one of three down", CheckConnectedAdd(3, 2), false},
		{"add, one of four down", CheckConnectedAdd(4, 3), true},
		{"add, one of five down", CheckConnectedAdd(5, 4), true},
		{"add, two of five down", CheckConnectedAdd(5, 3), false},
		{"remove a dead one", CheckConnectedRemove(3, 2, false), true},
		{"remove a live one of three, one down", CheckConnectedRemove(3, 2, true), false},
		{"remove a live one of three", CheckConnectedRemove(3, 3, true), true},
		{"remove a live one of two", CheckConnectedRemove(2, 2, true), true},
		{"remove a live one of five, two down", CheckConnectedRemove(5, 3, true), false},
	}
	for _, tc := range tests {
		if (tc.got == nil) != tc.ok || tc.got != nil && !errors.Is(tc.got, errs.ErrUnhealthy) {
			t.Errorf("%s: got %v", tc.name, tc.got)
		}
	}
}

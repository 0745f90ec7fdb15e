package archtest

// This file is the table of layers. imports.go holds the imports of every package against it.

// layer places a folder, with all folders below it that have no place of their own. A package
// imports packages of lower layers and those that share its place in the table; anything else needs
// an edge in alsoAllowed.
type layer struct {
	path string
	n    int
	why  string
}

// tools is the layer of programs and of what tests them; everything below is a library.
const toolsLayer = 8

var layers = []layer{
	{"pkg", 0, "building blocks that know nothing of coordd"},
	{"api", 1, "messages, services and the error taxonomy: the vocabulary that all others share"},
	{"wal", 2, "the log on disk; it stores bytes and does not know what they mean"},
	{"snap", 2, "snapshot files; they are bytes here too"},
	{"mvcc/backend", 2, "the bbolt file and its tail; it stores rows and does not know what they mean"},
	{"mvcc", 3, "revisions over the backend"},
	{"lease", 3, "the lease table stores numbers and keys, and leaves deleting to apply"},
	{"auth", 3, "users and roles over the backend"},
	{"member", 3, "membership over the backend"},
	{"watch", 4, "reads history from mvcc, and gets new events from apply's results"},
	{"raftnode", 4, "drives raft over wal and snap; what entries mean is decided above"},
	{"peer", 4, "moves messages and snapshots; what they mean is decided above"},
	{"apply", 5, "the only package that knows both mvcc and lease, so there are no setters between them"},
	{"server", 6, "a node: brings everything below together"},
	{"server/lock", 6, "queues and holds on transactions, the watch hub and leases; over a small interface of its own"},
	{"server/rpc", 6, "gRPC services over small interfaces of their own"},
	{"server/httpapi", 6, "HTTP over small interfaces of its own"},
	{"embed", 7, "wires a server for use inside a program"},
	{"client", 7, "the Go client; it lives in other people's programs"},
	{"proxy", 7, "stands between clients and servers"},
	{"cmd", toolsLayer, "programs"},
	{"internal/sim", toolsLayer, "whole clusters in one process"},
	{"internal/testnode", toolsLayer, "starts nodes for tests; only tests import it, which may import any layer"},
	{"internal/archtest", toolsLayer, "these rules"},
}

// edge is a set of imports: from any of the folders from, or below them, to any of the folders to,
// or below them.
type edge struct {
	from, to []string
	exact    bool // to means these packages only, not those below them
	why      string
}

// alsoAllowed are imports within a layer that are right all the same.
var alsoAllowed = []edge{
	{from: []string{"server/rpc"}, to: []string{"server/lock"}, why: "the services Lock and Election are thin: what they do is package lock's"},
	{from: []string{"embed"}, to: []string{"client"}, why: "embed hands out an in-process client"},
	{from: []string{"proxy"}, to: []string{"client"}, why: "a proxy is a client of the servers behind it"},
}

// never are imports that are wrong whatever the layers say. They are named because they are tempting.
var never = []edge{
	{from: []string{"mvcc"}, to: []string{"lease", "watch", "raftnode"}, why: "mvcc never knows lease, watch or raftnode: a key carries its lease as a number, and events leave as results"},
	{from: []string{"wal", "snap"}, to: []string{"mvcc"}, why: "wal and snap never know mvcc: they store bytes, so that recovery can be argued without the data model"},
	{from: []string{"server/rpc", "server/httpapi", "server/lock"}, to: []string{"server"}, exact: true, why: "services know small interfaces and not the server, so they can be tested and reused without a node"},
	{from: []string{"server", "apply", "mvcc", "watch", "lease", "auth", "member", "raftnode", "peer"}, to: []string{"client", "proxy"}, why: "the server is no client of itself: calls to itself would wait for their own locks and turn errors into texts"},
}

// only are the packages that may import nothing of the product but these.
var only = []edge{
	{from: []string{"pkg"}, to: []string{"pkg"}, why: "pkg knows nothing of coordd, so that anybody can use it"},
	{from: []string{"client"}, to: []string{"api", "pkg", "client"}, why: "the client imports api only, so that programs which use it do not link a server"},
}

// foreign are modules that the root module does not import, by prefix, with the reason.
var foreign = map[string]string{
	"go.etcd.io/etcd/": "coordd is not built of etcd; its modules appear only under tests/, as the independent user",
}

// layerOf finds the place of a folder: the longest entry that it is within.
func layerOf(dir string) (place layer, ok bool) {
	for _, l := range layers {
		if within(dir, l.path) && len(l.path) > len(place.path) {
			place, ok = l, true
		}
	}
	return place, ok
}

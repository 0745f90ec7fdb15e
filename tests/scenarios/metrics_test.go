package scenarios

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coordd/coordd/tests/cluster"
)

// scrape reads a member's metrics: the type of each name, and each series with its value.
func scrape(t *testing.T, url string) (types, series map[string]string) {
	t.Helper()
	resp := must(http.DefaultClient.Do(must(http.NewRequestWithContext(limited(t), http.MethodGet, url+"/metrics", nil))(t)))(t)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text := string(must(io.ReadAll(resp.Body))(t))
	types, series = map[string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, typ, _ := strings.Cut(rest, " ")
			types[name] = typ
		} else if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			series[line[:i]] = line[i+1:]
		}
	}
	return types, series
}

// wantTypes fails the test for each line "name type" of a list that is not as it says.
func wantTypes(t *testing.T, types map[string]string, list string) {
	t.Helper()
	for line := range strings.Lines(list) {
		if name, typ, ok := strings.Cut(strings.TrimSpace(line), " "); ok && types[name] != typ {
			t.Errorf("%s: %q, want %q", name, types[name], typ)
		}
	}
}

// Dashboards and alerts made for etcd find what they ask for: after three puts and one read on a cluster of one, every name that etcd
// shows then, with its type, and some values that can be known.
func TestMetricsAreThere(t *testing.T) {
	t.Parallel()
	m, c := single(t, "--quota-backend-bytes", "100000000")
	for _, k := range []string{"a", "b", "b"} {
		must(c.Put(limited(t), k, "value"))(t)
	}
	must(c.Get(limited(t), "a"))(t)
	must(http.Get(m.ClientURL + "/health"))(t).Body.Close()
	lease := must(c.Grant(limited(t), 600))(t)
	must(c.Revoke(limited(t), lease.ID))(t)
	types, series := scrape(t, m.ClientURL)
	wantTypes(t, types, metricsOfOne)
	for name, want := range map[string]string{
		"etcd_debugging_mvcc_keys_total":              "2",
		"etcd_debugging_mvcc_total_put_size_in_bytes": "18",
		"etcd_mvcc_put_total":                         "3",
		"etcd_mvcc_range_total":                       "2", // with that of /health
		"etcd_debugging_mvcc_current_revision":        "4",
		"etcd_debugging_lease_granted_total":          "1",
		"etcd_debugging_lease_revoked_total":          "1",
		"etcd_debugging_lease_ttl_total_sum":          "600",
		"etcd_server_health_success":                  "1",
		"etcd_server_health_failures":                 "0",
		"etcd_server_has_leader":                      "1",
		"etcd_server_is_leader":                       "1",
		"etcd_server_quota_backend_bytes":             "1e+08",
		`etcd_cluster_version{cluster_version="3.7"}`: "1",

		`etcd_server_feature_enabled{name="FastLeaseKeepAlive",stage="BETA"}`:                                          "1",
		`etcd_server_feature_enabled{name="PriorityRequest",stage="ALPHA"}`:                                            "0",
		`etcd_server_range_duration_seconds_count{success="true"}`:                                                     "2",
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}`: "3",
	} {
		if series[name] != want {
			t.Errorf("%s is %q, want %q", name, series[name], want)
		}
	}
	for _, name := range []string{"os_fd_used", "os_fd_limit", "etcd_disk_wal_write_bytes_total", "etcd_disk_wal_write_duration_seconds_count", "process_resident_memory_bytes"} {
		if v := series[name]; v == "" || v == "0" || v == "NaN" {
			t.Errorf("%s is %q", name, v)
		}
	}
}

// With three members there are those about their network, and each tells of the two others.
func TestMetricsOfTheNetwork(t *testing.T) {
	t.Parallel()
	cl := cluster.New(t, 3)
	c := cl.Etcd(t)
	must(c.Put(limited(t), "k", "v"))(t)
	for i, m := range cl.Members {
		must(cl.Etcd(t, i).Get(limited(t), "k"))(t) // it has heard of the leader
		cluster.Eventually(t, cluster.StartLimit, func() error {
			types, series := scrape(t, m.ClientURL)
			wantTypes(t, types, metricsOfThree)
			return peersOf(series)
		})
	}
}

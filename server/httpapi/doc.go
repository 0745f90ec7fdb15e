// Package httpapi answers the plain HTTP requests of the client port: whether the member is healthy, which
// versions it has, its metrics, and on request its profiles. gRPC does not come through here.
//
// [New] makes an [API]. [API.Handler] is for client listeners, [API.MetricsHandler] for listeners that are for
// monitoring alone. The package owns no listener and no goroutine; handlers may be used by any number of
// goroutines, as usual. The member is seen through the interface [Node].
//
// # Paths
//
//	/health           one verdict in JSON: alarms, leader, a read (health.go)
//	/livez, /readyz   verdicts made of named checks, each also by itself as /livez/<check> (checks.go)
//	/version          versions of server, cluster and storage in JSON, and coordd's own
//	/metrics          the metrics of the Gatherer in Config
//	/debug/pprof/     profiles, if Config.Pprof is set
//	/v3/              Config.Gateway, if there is one
//
// Anything else is 404. livez asks whether the process is worth keeping; readyz whether it should get requests.
//
// # Access
//
// Handler applies two rules to each request (access.go). A request in the clear must name, in its header
// Host, a host that is on the whitelist: otherwise a web page could have a browser talk to a member
// by a name that resolves to the member's address. And answers carry the CORS headers for the allowed origins.
package httpapi

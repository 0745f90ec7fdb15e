package embed

// This file is the table of all settings. Flags and keys are etcd's.

func memberSettings(t *table, c *Config) {
	t.add("name", text(&c.Name), "Name of this member, unique in the cluster.")
	t.add("data-dir", text(&c.Dir), "Directory of this member's data; empty stands for the name with .etcd, in the working directory.")
	t.add("wal-dir", text(&c.WALDir), "Directory of the write-ahead log, if it shall lie on another disk; empty stands for member/wal in the data directory.")
	t.add("heartbeat-interval", millis(&c.Heartbeat), "Time between a leader's signs of life.")
	t.add("election-timeout", millis(&c.ElectionTimeout), "Time without a sign of life after which an election begins; at least 5 heartbeat intervals, at most 50000.")
	t.add("initial-election-tick-advance", boolean(&c.InitialTickAdvance), "Shorten the wait for the first election after a start.")
	t.add("pre-vote", boolean(&c.PreVote), "Ask whether an election could be won before holding it, so that a member that comes back disturbs nobody.")
}

func listenSettings(t *table, c *Config) {
	t.add("listen-peer-urls", urls(&c.ListenPeerURLs), "URLs on which to listen for other members.")
	t.add("listen-client-urls", urls(&c.ListenClientURLs), "URLs on which to listen for clients: gRPC and HTTP on one port.")
	t.add("listen-client-http-urls", urls(&c.ListenClientHTTPURLs), "URLs for HTTP alone; those of listen-client-urls then serve gRPC alone.")
	t.add("listen-metrics-urls", urls(&c.ListenMetricsURLs), "Further URLs that serve /metrics and the health pages alone.")
	t.add("max-concurrent-streams", unsigned(&c.MaxConcurrentStreams), "Calls that may be open on one connection at a time.")
	t.add("grpc-keepalive-min-time", duration(&c.KeepAliveMinTime), "Least time between pings of a client; one that pings more often is disconnected.")
	t.add("grpc-keepalive-interval", duration(&c.KeepAliveInterval), "Silence on a connection after which the server pings it; 0 for never.")
	t.add("grpc-keepalive-timeout", duration(&c.KeepAliveTimeout), "Time to wait for the answer to a ping before the connection is closed; 0 for no pings.")
	t.nested("socket-reuse-port", "socket-options.reuse-port", boolean(&c.ReusePort), "Set SO_REUSEPORT on listeners.")
	t.nested("socket-reuse-address", "socket-options.reuse-address", boolean(&c.ReuseAddress), "Set SO_REUSEADDR on listeners.")
	t.nested("raft-read-timeout", "", duration(&c.RaftReadTimeout), "Read timeout of peer connections.").lacks(pointless("peer connections are watched by pings"))
	t.nested("raft-write-timeout", "", duration(&c.RaftWriteTimeout), "Write timeout of peer connections.").lacks(pointless("peer connections are watched by pings"))
	t.add("enable-grpc-gateway", boolean(&c.EnableGateway), "Serve the JSON form of the API under /v3/.")
}

func storageSettings(t *table, c *Config) {
	t.add("snapshot-count", unsigned(&c.SnapshotCount), "Applied entries after which old parts of the log are released.")
	t.add("snapshot-catchup-entries", unsigned(&c.CatchUpEntries), "Entries kept in the log for members that lag.")
	t.add("max-wals", unsigned(&c.MaxWALs), "Files of the log to keep.").lacks(pointless("files are released when no member needs them"))
	t.add("quota-backend-bytes", signed(&c.QuotaBytes), "Limit of live data in the data file, above which writes are refused; 0 stands for 2 GiB, a negative number for no limit.")
	t.add("backend-bbolt-freelist-type", choice(&c.FreelistType, "", "map", "array"), "How the data file tracks free pages.").lacks(pointless("a map is always used"))
	t.add("backend-batch-interval", duration(&c.BatchInterval), "Longest time that changes, safe in the log, wait to be written to the data file; 0 stands for 100ms.")
	t.add("backend-batch-limit", signed(&c.BatchOps), "Changes after which the data file is written; 0 stands for 10000.")
	t.add("max-txn-ops", unsigned(&c.MaxTxnOps), "Operations that one transaction may hold.")
	t.add("max-request-bytes", unsigned(&c.MaxRequestBytes), "Size of the largest request.")
	t.add("memory-mlock", boolean(&c.MemoryLock), "Keep the data file's pages in memory.").lacks(warned("pages may be swapped out"))
}

func clusterSettings(t *table, c *Config) {
	t.add("initial-advertise-peer-urls", urls(&c.AdvertisePeerURLs), "URLs under which other members reach this one.")
	t.add("advertise-client-urls", urls(&c.AdvertiseClientURLs), "URLs under which clients reach this member; needed when listen-client-urls is set.")
	t.add("initial-cluster", text(&c.InitialCluster), "Members of a new cluster, as name=url,name=url with a name repeated for each of its URLs; empty stands for this member alone.")
	t.add("initial-cluster-state", choice(&c.ClusterState, "new", "existing"), "Whether to found a new cluster or to join an existing one.")
	t.add("initial-cluster-token", text(&c.ClusterToken), "Text that tells clusters with equal URLs apart.")
	t.add("strict-reconfig-check", boolean(&c.StrictReconfigCheck), "Refuse changes of members that would lose the quorum.").lacks(warned("members cannot be changed at run time"))
	t.add("max-learners", signed(&c.MaxLearners), "Learners that the cluster may have at a time.")
}

func discoverySettings(t *table, c *Config) {
	const why = "name all members in --initial-cluster"
	d := &c.Discovery
	add := func(flag, key string, v *value, help string) {
		if key != "" {
			key = "discovery-config." + key
		}
		t.nested(flag, key, v, help).lacks(refused(why))
	}
	add("discovery-token", "token", text(&d.Token), "Token of the new cluster at the discovery service.")
	add("discovery-endpoints", "client.endpoints", list(&d.Endpoints), "Endpoints of the discovery service, which is a running cluster.")
	add("discovery-dial-timeout", "client.dial-timeout", duration(&d.DialTimeout), "Timeout of connecting to the discovery service.")
	add("discovery-request-timeout", "client.request-timeout", duration(&d.RequestTimeout), "Timeout of a request to the discovery service.")
	add("discovery-keepalive-time", "client.keepalive-time", duration(&d.KeepAliveTime), "Silence after which the discovery service is pinged.")
	add("discovery-keepalive-timeout", "client.keepalive-timeout", duration(&d.KeepAliveTimeout), "Wait for the answer to such a ping.")
	add("discovery-insecure-transport", "client.secure.insecure-transport", boolean(&d.InsecureTransport), "Talk to the discovery service in the clear.")
	add("discovery-insecure-skip-tls-verify", "client.secure.insecure-skip-tls-verify", boolean(&d.InsecureSkipVerify), "Believe any certificate of the discovery service.")
	add("discovery-cert", "client.secure.cert", text(&d.CertFile), "Client certificate for the discovery service.")
	add("discovery-key", "client.secure.key", text(&d.KeyFile), "Key of that certificate.")
	add("discovery-cacert", "client.secure.cacert", text(&d.CAFile), "Authority that signed the discovery service's certificate.")
	add("discovery-user", "client.auth.username", text(&d.User), "User name at the discovery service.")
	add("discovery-password", "client.auth.password", text(&d.Password), "Password of that user.")
	add("discovery-fallback", "", choice(&c.DiscoveryFallback, "exit", "proxy"), "What to do when discovery fails; only exit.")
	t.add("discovery-srv", text(&c.DiscoverySRV), "DNS domain whose SRV records name the members.").lacks(refused(why))
	t.add("discovery-srv-name", text(&c.DiscoverySRVName), "Suffix of the SRV records' service name.").lacks(refused(why))
}

const tlsLacks = "coordd cannot serve TLS; run it in a trusted network, or behind a TLS proxy"

func securitySettings(t *table, c *Config) {
	add := func(flag, key string, v *value, help string) { t.nested(flag, key, v, help).lacks(refused(tlsLacks)) }
	ct, pt := &c.ClientTLS, &c.PeerTLS
	const client, peer = "client-transport-security.", "peer-transport-security."
	add("cert-file", client+"cert-file", text(&ct.CertFile), "Certificate of the client listeners.")
	add("key-file", client+"key-file", text(&ct.KeyFile), "Key of that certificate.")
	add("client-cert-file", client+"client-cert-file", text(&ct.ClientCertFile), "Certificate that the member shows when it is a client itself.")
	add("client-key-file", client+"client-key-file", text(&ct.ClientKeyFile), "Key of that certificate.")
	add("client-cert-auth", client+"client-cert-auth", boolean(&ct.ClientCertAuth), "Require certificates of clients, whose common names are then user names.")
	add("client-crl-file", "", text(&ct.CRLFile), "List of revoked client certificates.")
	add("client-cert-allowed-hostname", client+"allowed-hostname", list(&ct.AllowedHostnames), "Host names that clients' certificates may be for.")
	add("", client+"allowed-cn", list(&ct.AllowedCNs), "Common names that clients' certificates may have.")
	add("", client+"skip-client-san-verification", boolean(&ct.SkipClientSAN), "Do not compare the names in a client's certificate with its address.")
	add("trusted-ca-file", client+"trusted-ca-file", text(&ct.TrustedCAFile), "Authority that signs clients' certificates.")
	add("auto-tls", client+"auto-tls", boolean(&ct.Auto), "Protect client listeners by a certificate that signs itself.")
	add("peer-cert-file", peer+"cert-file", text(&pt.CertFile), "Certificate for traffic between members.")
	add("peer-key-file", peer+"key-file", text(&pt.KeyFile), "Key of that certificate.")
	add("peer-client-cert-file", peer+"client-cert-file", text(&pt.ClientCertFile), "Certificate shown to other members, if it is another one.")
	add("peer-client-key-file", peer+"client-key-file", text(&pt.ClientKeyFile), "Key of that certificate.")
	add("peer-client-cert-auth", peer+"client-cert-auth", boolean(&pt.ClientCertAuth), "Require certificates of other members.")
	add("peer-trusted-ca-file", peer+"trusted-ca-file", text(&pt.TrustedCAFile), "Authority that signs members' certificates.")
	add("peer-auto-tls", peer+"auto-tls", boolean(&pt.Auto), "Protect peer traffic by a certificate that signs itself.")
	add("peer-crl-file", "", text(&pt.CRLFile), "List of revoked members' certificates.")
	add("peer-cert-allowed-cn", peer+"allowed-cn", list(&pt.AllowedCNs), "Common names that members' certificates may have.")
	add("peer-cert-allowed-hostname", peer+"allowed-hostname", list(&pt.AllowedHostnames), "Host names that members' certificates may be for.")
	add("peer-skip-client-san-verification", peer+"skip-client-san-verification", boolean(&pt.SkipClientSAN), "Do not compare the names in a member's certificate with its address.")

	unused := warned("there is no TLS")
	t.add("self-signed-cert-validity", unsigned(&c.SelfSignedYears), "Years for which a certificate that signs itself is good.").lacks(unused)
	t.add("cipher-suites", list(&c.CipherSuites), "Cipher suites allowed up to TLS 1.2, by their names in Go.").lacks(unused)
	t.add("tls-min-version", text(&c.TLSMinVersion), "Oldest TLS version: TLS1.2 or TLS1.3.").lacks(unused)
	t.add("tls-max-version", text(&c.TLSMaxVersion), "Newest TLS version: TLS1.2 or TLS1.3; empty for the newest there is.").lacks(unused)
	t.add("cors", list(&c.CORS), "Origins from which browsers may call; * for all.")
	t.add("host-whitelist", list(&c.HostWhitelist), "Host names that plain HTTP requests may be for; * for all.")
}

func authSettings(t *table, c *Config) {
	t.add("auth-token", text(&c.AuthToken), "Kind of token: simple, or jwt with its options.").lacks(refused("there is no authentication"))
	t.add("auth-token-ttl", unsigned(&c.AuthTokenTTL), "Seconds that a simple token lives without use.").lacks(warned("there is no authentication"))
	t.add("bcrypt-cost", unsigned(&c.BcryptCost), "Cost of hashing a password, 4 to 31.").lacks(warned("there is no authentication"))
}

func logSettings(t *table, c *Config) {
	l := &c.Log
	t.add("logger", text(&l.Logger), "Library that logs; only zap.")
	t.add("log-outputs", list(&l.Outputs), "Where to log: default, which is stderr, or stderr, stdout or paths of files.")
	t.add("log-level", text(&l.Level), "Least level to log: debug, info, warn, error, panic or fatal.")
	t.add("log-format", text(&l.Format), "Form of the log: json or console.")
	t.add("enable-log-rotation", boolean(&l.Rotation), "Begin a new file when the log file is full; for one file as the only output.")
	t.add("log-rotation-config-json", text(&l.Rotate), "How: maxsize in MB, maxage in days, maxbackups, localtime and compress.")
}

func monitorSettings(t *table, c *Config) {
	t.add("enable-pprof", boolean(&c.Pprof), "Serve profiles under /debug/pprof/.")
	t.add("metrics", choice(&c.Metrics, "basic", "extensive"), "Which metrics to keep: basic, or extensive with latency histograms of each method.")
	lacks := warned("no traces are exported")
	t.add("enable-distributed-tracing", boolean(&c.Tracing), "Export traces by OpenTelemetry.").lacks(lacks)
	t.add("distributed-tracing-address", text(&c.TracingAddress), "Address of the collector of traces.").lacks(lacks)
	t.add("distributed-tracing-service-name", text(&c.TracingServiceName), "Name of the service in traces.").lacks(lacks)
	t.add("distributed-tracing-instance-id", text(&c.TracingInstanceID), "Name of this member in traces.").lacks(lacks)
	t.add("distributed-tracing-sampling-rate", signed(&c.TracingSamplingRate), "Requests traced, per million.").lacks(lacks)
}

func maintenanceSettings(t *table, c *Config) {
	history := warned("history is kept until a client compacts it")
	t.add("auto-compaction-mode", text(&c.AutoCompactionMode), "What the retention counts: periodic for time, revision for revisions.").lacks(history)
	t.add("auto-compaction-retention", text(&c.AutoCompactionRetention), "History to keep: hours or a duration if periodic, else a number of revisions; 0 keeps all.").lacks(history)
	t.add("compaction-batch-limit", signed(&c.CompactionBatch), "Rows that one step of a compaction removes; 0 stands for 1000.")
	t.add("compaction-sleep-interval", duration(&c.CompactionSleep), "Pause between steps of a compaction.").lacks(pointless("steps give way to writes by themselves"))
	t.add("corrupt-check-time", duration(&c.CorruptCheckTime), "Time between comparisons of all members' data; 0 for none.").lacks(warned("members' data is not compared"))
	t.add("compact-hash-check-time", duration(&c.CompactHashCheckTime), "Time between comparisons of members' data at compactions.").lacks(warned("members' data is not compared"))
	t.add("watch-progress-notify-interval", duration(&c.WatchProgressInterval), "Silence of a watch after which it is told the revision, if it asked to be; 0 stands for 10m, at least 100ms.")
	t.add("downgrade-check-time", duration(&c.DowngradeCheckTime), "Time between checks for a downgrade.").lacks(warned("there are no downgrades"))
	t.add("warning-apply-duration", duration(&c.WarnApply), "Time of an apply above which it is logged.")
	t.add("warning-unary-request-duration", duration(&c.WarnRequest), "Time of a request above which it is logged.")
	t.add("bootstrap-defrag-threshold-megabytes", unsigned(&c.BootstrapDefragMegabyte), "Free space above which the data file is rewritten at start; 0 for never.").lacks(warned("free space is used again, but the file does not shrink"))
	t.add("feature-gates", gates(&c.FeatureGates), "Features to switch on or off, as A=true,B=false.").lacks(warned("the gates are known, but switch nothing"))
}

func unsafeSettings(t *table, c *Config) {
	t.add("force-new-cluster", boolean(&c.ForceNewCluster), "Make this member a cluster of its own, without the others.").lacks(refused("restore the other members instead"))
	t.add("unsafe-no-fsync", boolean(&c.UnsafeNoFsync), "Do not wait for the disk: a power cut loses acknowledged writes.")
}

// obsoleteSettings are flags that some release of etcd takes and ignores.
func obsoleteSettings(t *table, _ *Config) {
	for _, name := range []string{
		"cluster-active-size", "cluster-remove-delay", "cluster-sync-interval", "config", "max-result-buffer",
		"max-retry-attempts", "max-snapshots", "peer-election-timeout", "peer-heartbeat-interval",
		"retry-interval", "test.coverprofile", "test.outputdir", "v2-deprecation",
	} {
		t.nested(name, "", ignored(false), "Ignored.").obsolete = true
	}
	for _, name := range []string{"force", "snapshot", "v", "vv"} {
		t.nested(name, "", ignored(true), "Ignored.").obsolete = true
	}
}

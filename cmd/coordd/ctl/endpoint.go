package ctl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

func newEndpoint(s *settings) *cobra.Command {
	return group("endpoint", "Ask each member by itself", newEndpointHealth(s), newEndpointStatus(s), newEndpointHashKV(s))
}

// clusterFlag adds --cluster.
func clusterFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("cluster", false, "ask all members that the cluster lists, not only --endpoints")
}

// each calls ask for every endpoint, all at once, each with a client and the time for a command of its own, and gives the results
// in the order of the endpoints.
func each[T any](s *settings, cmd *cobra.Command, cluster bool, ask func(ctx context.Context, c *client.Client, endpoint string) T) ([]T, error) {
	endpoints := s.endpoints
	if cluster {
		err := s.run(cmd, func(ctx context.Context, c *client.Client, _ *printer) error {
			if err := c.Sync(ctx); err != nil {
				return fmt.Errorf("cannot learn the members from the cluster: %w", err)
			}
			endpoints = c.Endpoints()
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	clients := make([]*client.Client, len(endpoints))
	for i, e := range endpoints {
		c, err := s.connect(e)
		if err != nil {
			return nil, err
		}
		defer c.Close() //nolint:errcheck // gives nothing but nil
		clients[i] = c
	}
	results := make([]T, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(cmd.Context(), s.commandTimeout)
			defer cancel()
			results[i] = ask(ctx, clients[i], e)
		})
	}
	wg.Wait()
	return results, nil
}

// healthResult is how one endpoint does.
type healthResult struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`
}

func newEndpointHealth(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:     "health",
		Short:   "Tell whether members serve reads with a quorum and have no alarm",
		Example: "  coordd endpoint health --cluster",
		Args:    arguments(0, 0, "no arguments"),
	}
	cluster := clusterFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		results, err := each(s, cmd, *cluster, health)
		if err != nil {
			return err
		}
		p := s.printer(cmd)
		bad := false
		for _, r := range results {
			if bad = bad || !r.Health; !r.Health && p.format == "simple" {
				fmt.Fprintf(p.errOut, "%s is unhealthy: failed to commit proposal: %s\n", r.Endpoint, r.Error) //nolint:errcheck // the exit code tells too
			}
		}
		if err := p.show(healthView(results)); err != nil {
			return err
		}
		if bad {
			return fail(exitError, "unhealthy cluster")
		}
		return nil
	}
	return c
}

// health asks one endpoint. A refused permission comes from a server that works.
func health(ctx context.Context, c *client.Client, endpoint string) healthResult {
	start := time.Now()
	_, err := c.Get(ctx, "health")
	r := healthResult{Endpoint: endpoint, Took: time.Since(start).String()}
	if err != nil && !errors.Is(err, errs.ErrPermissionDenied) {
		r.Error, _ = explain(err)
		return r
	}
	alarms, err := c.Alarms(ctx)
	switch {
	case errors.Is(err, errs.ErrPermissionDenied):
	case err != nil:
		r.Error = "Unable to fetch the alarm list"
	case len(alarms.Alarms) > 0:
		r.Error = "Active Alarm(s): "
		for _, a := range alarms.Alarms {
			r.Error += a.Alarm.String() + " "
		}
	}
	r.Health = r.Error == ""
	return r
}

func healthView(results []healthResult) view {
	return view{
		simple: func(w *lines) {
			for _, r := range results {
				if r.Health {
					w.line("%s is healthy: successfully committed proposal: took = %s", r.Endpoint, r.Took)
				}
			}
		},
		fields: func(w *lines) {
			for _, r := range results {
				w.field("Endpoint", strconv.Quote(r.Endpoint))
				w.field("Health", r.Health)
				w.field("Took", strconv.Quote(r.Took))
				w.field("Error", strconv.Quote(r.Error))
				w.line("")
			}
		},
		table: func() [][]string {
			rows := [][]string{{"endpoint", "health", "took", "error"}}
			for _, r := range results {
				rows = append(rows, []string{r.Endpoint, strconv.FormatBool(r.Health), r.Took, r.Error})
			}
			return rows
		},
		json: results,
	}
}

// statusResult is the state of one endpoint.
type statusResult struct {
	Endpoint string
	Status   *rpcpb.StatusResponse
	err      error
}

func newEndpointStatus(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Tell version, size, leader and position of members",
		Long: "Tell of each member: endpoint, id, version, storage version, size of the file, of it in use, percentage not in use,\n" +
			"quota, is it the leader, is it a learner, raft term, index and applied index, errors, downgrade target and state.",
		Example: "  coordd endpoint status --cluster -w table",
		Args:    arguments(0, 0, "no arguments"),
	}
	cluster := clusterFlag(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		results, err := each(s, cmd, *cluster, func(ctx context.Context, c *client.Client, endpoint string) statusResult {
			st, err := c.Status(ctx, endpoint)
			return statusResult{endpoint, st, err}
		})
		if err != nil {
			return err
		}
		p := s.printer(cmd)
		var good []statusResult
		var failed error
		for _, r := range results {
			if r.err != nil {
				text, _ := explain(r.err)
				fmt.Fprintf(p.errOut, "Failed to get the status of endpoint %s (%s)\n", r.Endpoint, text) //nolint:errcheck // the exit code tells too
				failed = &ExitError{Code: exitError}
				continue
			}
			good = append(good, r)
		}
		if err := p.show(statusView(good)); err != nil {
			return err
		}
		return failed
	}
	return c
}

func statusView(results []statusResult) view {
	rows := [][]string{{
		"endpoint", "ID", "version", "storage version", "db size", "in use", "percentage not in use", "quota", "is leader", "is learner",
		"raft term", "raft index", "raft applied index", "errors", "downgrade target version", "downgrade enabled",
	}}
	for _, r := range results {
		st := r.Status
		unused := int64(0)
		if st.DbSize > 0 {
			unused = (st.DbSize - st.DbSizeInUse) * 100 / st.DbSize
		}
		rows = append(rows, []string{
			r.Endpoint, fmt.Sprintf("%x", st.GetHeader().GetMemberId()), st.Version, st.StorageVersion,
			humanize.Bytes(uint64(max(st.DbSize, 0))), humanize.Bytes(uint64(max(st.DbSizeInUse, 0))), fmt.Sprintf("%d%%", unused),
			humanize.Bytes(uint64(max(st.DbSizeQuota, 0))), strconv.FormatBool(st.Leader == st.GetHeader().GetMemberId()), strconv.FormatBool(st.IsLearner),
			strconv.FormatUint(st.RaftTerm, 10), strconv.FormatUint(st.RaftIndex, 10), strconv.FormatUint(st.RaftAppliedIndex, 10),
			strings.Join(st.Errors, ", "), st.GetDowngradeInfo().GetTargetVersion(), strconv.FormatBool(st.GetDowngradeInfo().GetEnabled()),
		})
	}
	if results == nil {
		results = []statusResult{}
	}
	return view{
		simple: func(w *lines) {
			for _, row := range rows[1:] {
				w.line("%s", strings.Join(row, ", "))
			}
		},
		fields: func(w *lines) {
			for _, r := range results {
				statusFields(w, r)
			}
		},
		table: func() [][]string { return rows },
		json:  results,
	}
}

func statusFields(w *lines, r statusResult) {
	st := r.Status
	w.header(st.Header)
	w.field("Version", strconv.Quote(st.Version))
	w.field("StorageVersion", strconv.Quote(st.StorageVersion))
	w.field("DBSize", st.DbSize)
	w.field("DBSizeInUse", st.DbSizeInUse)
	w.field("DBSizeQuota", st.DbSizeQuota)
	w.id("Leader", st.Leader)
	w.field("IsLearner", st.IsLearner)
	w.field("RaftIndex", st.RaftIndex)
	w.field("RaftTerm", st.RaftTerm)
	w.field("RaftAppliedIndex", st.RaftAppliedIndex)
	w.field("Errors", fmt.Sprintf("%q", st.Errors))
	w.field("Endpoint", strconv.Quote(r.Endpoint))
	w.field("DowngradeTargetVersion", strconv.Quote(st.GetDowngradeInfo().GetTargetVersion()))
	w.field("DowngradeEnabled", st.GetDowngradeInfo().GetEnabled())
	w.line("")
}

// hashResult is the hash of one endpoint.
type hashResult struct {
	Endpoint string
	HashKV   *rpcpb.HashKVResponse
	err      error
}

func newEndpointHashKV(s *settings) *cobra.Command {
	var rev int64
	c := &cobra.Command{
		Use:   "hashkv",
		Short: "Hash the keys of members, to compare them",
		Long: "Print for each member the hash over its keys and the revision it is of. At the same revision, and with the same\n" +
			"compact revision, all members must agree.",
		Example: "  coordd endpoint hashkv --cluster --rev 1000",
		Args:    arguments(0, 0, "no arguments"),
	}
	cluster := clusterFlag(c)
	c.Flags().Int64Var(&rev, "rev", 0, "hash up to this revision; 0 is the current one")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		results, err := each(s, cmd, *cluster, func(ctx context.Context, c *client.Client, endpoint string) hashResult {
			h, err := c.HashKV(ctx, endpoint, rev)
			return hashResult{endpoint, h, err}
		})
		if err != nil {
			return err
		}
		p := s.printer(cmd)
		good := []hashResult{}
		var failed error
		for _, r := range results {
			if r.err != nil {
				text, _ := explain(r.err)
				fmt.Fprintf(p.errOut, "Failed to get the hash of endpoint %s (%s)\n", r.Endpoint, text) //nolint:errcheck // the exit code tells too
				failed = &ExitError{Code: exitError}
				continue
			}
			good = append(good, r)
		}
		if err := p.show(hashView(good)); err != nil {
			return err
		}
		return failed
	}
	return c
}

func hashView(results []hashResult) view {
	rows := [][]string{{"endpoint", "hash", "hash_revision"}}
	for _, r := range results {
		rows = append(rows, []string{r.Endpoint, strconv.FormatUint(uint64(r.HashKV.Hash), 10), strconv.FormatInt(r.HashKV.HashRevision, 10)})
	}
	return view{
		simple: func(w *lines) {
			for _, row := range rows[1:] {
				w.line("%s", strings.Join(row, ", "))
			}
		},
		fields: func(w *lines) {
			for _, r := range results {
				w.header(r.HashKV.Header)
				w.field("Endpoint", strconv.Quote(r.Endpoint))
				w.field("Hash", r.HashKV.Hash)
				w.field("HashRevision", r.HashKV.HashRevision)
				w.field("CompactRevision", r.HashKV.CompactRevision)
				w.line("")
			}
		},
		table: func() [][]string { return rows },
		json:  results,
	}
}

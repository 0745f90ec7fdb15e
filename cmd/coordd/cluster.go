package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/embed"
)

// plan is the shape of a cluster to try things out with. It is kept in its directory, since members remember their
// addresses.
type plan struct {
	Size     int `json:"size"`
	BasePort int `json:"basePort"`
}

const (
	planFile        = "cluster.json"
	defaultBasePort = 2379
	maxSize         = 7
)

// ports are those of member i for clients and peers: 2379 and 2380, 22379 and 22380, 32379 and 32380 …, as usual in
// examples; with another base, ten apart.
func (p plan) ports(i int) (client, peer int) {
	client = p.BasePort + 10*i
	if p.BasePort == defaultBasePort && i > 0 && i < 6 {
		client = p.BasePort + 10000*(i+1)
	}
	return client, client + 1
}

func (p plan) validate() error {
	if p.Size < 1 || p.Size > maxSize {
		return fmt.Errorf("--size is %d: it must be from 1 to %d", p.Size, maxSize)
	}
	if p.BasePort < 1 || p.BasePort+10*p.Size > 65535 {
		return fmt.Errorf("--base-port is %d: it must be from 1 to %d", p.BasePort, 65535-10*p.Size)
	}
	return nil
}

func newCluster(stdout, stderr io.Writer) *cobra.Command {
	want := plan{Size: 3, BasePort: defaultBasePort}
	dir := "coordd-data"
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Run a cluster on this machine, to try things out",
		Long: "Runs a cluster of three members in one process, listening on loopback, until it is interrupted.\n" +
			"Its data is kept, so the next run goes on where this one ended.",
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntVar(&want.Size, "size", want.Size, "members of the cluster")
	f.StringVar(&dir, "data-dir", dir, "directory for data and logs")
	f.IntVar(&want.BasePort, "base-port", want.BasePort, "port for the first member's clients; the others follow")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := settle(dir, want, f.Changed("size"), f.Changed("base-port"))
		if err != nil {
			return status(fail(stderr, err))
		}
		if err := runCluster(cmd.Context(), dir, p, stdout); err != nil {
			return status(fail(stderr, err))
		}
		return nil
	}
	return c
}

// settle brings together what the user wants and what the directory holds.
func settle(dir string, want plan, sizeGiven, portGiven bool) (plan, error) {
	path := filepath.Join(dir, planFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := want.validate(); err != nil {
			return want, err
		}
		return want, savePlan(dir, path, want)
	}
	if err != nil {
		return want, fmt.Errorf("cannot read the cluster's plan: %w: choose another directory with --data-dir", err)
	}
	var kept plan
	if err := json.Unmarshal(data, &kept); err != nil || kept.validate() != nil {
		return want, fmt.Errorf("%s is damaged: correct it, or remove the directory %s and its data", path, dir)
	}
	if sizeGiven && want.Size != kept.Size || portGiven && want.BasePort != kept.BasePort {
		return want, fmt.Errorf("%s holds a cluster of %d members with base port %d: run it without --size and --base-port, choose another --data-dir, or remove it and its data",
			dir, kept.Size, kept.BasePort)
	}
	return kept, nil
}

func savePlan(dir, path string, p plan) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make the directory: %w: choose another with --data-dir", err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("cannot write: %w: choose another directory with --data-dir", err)
	}
	return nil
}

// config is that of member i; logs go to a file beside its data.
func (p plan) config(dir string, i int) *embed.Config {
	c := embed.NewConfig()
	var initial []string
	for j := range p.Size {
		_, peer := p.ports(j)
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", j+1, peer))
	}
	client, peer := p.ports(i)
	c.Name = fmt.Sprintf("m%d", i+1)
	c.Dir = filepath.Join(dir, c.Name)
	c.ListenClientURLs = []string{fmt.Sprintf("http://127.0.0.1:%d", client)}
	c.ListenPeerURLs = []string{fmt.Sprintf("http://127.0.0.1:%d", peer)}
	c.InitialCluster, c.ClusterToken = strings.Join(initial, ","), "coordd-cluster"
	c.Log.Outputs = []string{filepath.Join(dir, c.Name+".log")}
	return c
}

// localCluster is the members that run, with their logs.
type localCluster struct {
	nodes []*embed.Node
	logs  []func() error
}

// close ends the members and then closes their logs.
func (l *localCluster) close() error {
	ended := make(chan error, len(l.nodes))
	for _, n := range l.nodes { // at once: the last ones alone would wait for a majority
		go func() { ended <- n.Close() }()
	}
	var errs []error
	for range l.nodes {
		errs = append(errs, <-ended)
	}
	for _, c := range l.logs {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// start starts one member.
func (l *localCluster) start(ctx context.Context, c *embed.Config) error {
	lg, closeLog, err := embed.NewLogger(c.Log, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	l.logs = append(l.logs, closeLog)
	c.Logger = lg
	node, err := embed.Start(ctx, c)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; or let the cluster use other ports with --base-port and another --data-dir", err)
	}
	if err != nil {
		return fmt.Errorf("member %s: %w", c.Name, err)
	}
	l.nodes = append(l.nodes, node)
	return nil
}

// runCluster runs the cluster until the context ends or a member does.
func runCluster(ctx context.Context, dir string, p plan, out io.Writer) (err error) {
	begin := time.Now()
	say := func(format string, args ...any) { fmt.Fprintf(out, format, args...) } //nolint:errcheck // a cluster runs on when nobody reads
	say("Starting %d members in one process; data and logs are in %s.\n", p.Size, dir)
	var l localCluster
	defer func() { err = errors.Join(err, l.close()) }()
	for i := range p.Size {
		if err := l.start(ctx, p.config(dir, i)); err != nil {
			return err
		}
		client, peer := p.ports(i)
		say("  m%d  clients http://127.0.0.1:%d  peers http://127.0.0.1:%d  log %s\n", i+1, client, peer, filepath.Join(dir, fmt.Sprintf("m%d.log", i+1)))
	}
	for _, n := range l.nodes {
		if err := n.WaitReady(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%w; the logs in %s tell more", err, dir)
		}
	}
	say("Ready after %.1f s.\n%s", time.Since(begin).Seconds(), p.advice())
	if i := firstEnd(ctx, l.nodes); i >= 0 {
		return fmt.Errorf("member m%d has stopped: %w; its log is %s", i+1, reason(l.nodes[i].Err()), filepath.Join(dir, fmt.Sprintf("m%d.log", i+1)))
	}
	say("\nStopping. The data stays in %s.\n", dir)
	return nil
}

// firstEnd waits for the first member to end, and gives its number; -1 if the context ends before.
func firstEnd(ctx context.Context, nodes []*embed.Node) int {
	ended := make(chan int, len(nodes))
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, n := range nodes {
		go func() {
			select {
			case <-n.Done():
				ended <- i
			case <-waiting.Done():
			}
		}()
	}
	select {
	case i := <-ended:
		return i
	case <-ctx.Done():
		return -1
	}
}

// advice is what to try with the cluster.
func (p plan) advice() string {
	var all []string
	for i := range p.Size {
		client, _ := p.ports(i)
		all = append(all, fmt.Sprintf("127.0.0.1:%d", client))
	}
	endpoints := " --endpoints " + strings.Join(all, ",")
	own := endpoints
	if p.BasePort == defaultBasePort {
		own = "" // the client's default
	}
	return fmt.Sprintf(`Try in another terminal:
  coordd put greeting hello%[1]s
  coordd get greeting%[1]s
  coordd endpoint status -w table%[2]s
or with etcd's client:
  etcdctl%[2]s put greeting hello
Interrupt with ^C to stop.
`, own, endpoints)
}

package ctl

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/mirror"
)

// mirrorReport is how often make-mirror prints how much it has done, as etcdctl does.
const mirrorReport = 30 * time.Second

// mirrorFlags is the flags of make-mirror.
type mirrorFlags struct {
	prefix, destPrefix string
	noDestPrefix       bool
	rev                int64
	maxOps             int
	progress           string
	deleteExtra        bool
	dest               settings // of the connection to the destination
}

func newMakeMirror(s *settings) *cobra.Command {
	var f mirrorFlags
	c := &cobra.Command{
		Use:   "make-mirror [flags] <destination>",
		Short: "Keep a copy of keys in another cluster",
		Long: `Copy keys to the cluster with the endpoints given, separated by commas, and go on copying what changes, until interrupted. Every 30 s
the number of changes made is printed.

With --progress-key the next run goes on where this one ended, deletions in between included. Without it, a run begins with comparing
both sides; keys that only the destination has are left alone, or deleted with --delete-extra.`,
		Example: "  coordd make-mirror 10.1.0.1:2379 --prefix config/ --progress-key mirrors/config\n  coordd make-mirror 10.1.0.1:2379 --prefix config/ --dest-prefix copy/ --delete-extra",
		Args:    arguments(1, 1, "the endpoints of the destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.noDestPrefix && f.destPrefix != "" {
				return fail(exitArguments, "--dest-prefix and --no-dest-prefix exclude each other")
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				return f.run(ctx, s, c, p, args[0])
			})
		},
	}
	f.register(c)
	return c
}

func (f *mirrorFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.prefix, "prefix", "", "copy the keys that begin with this; all keys without it")
	fs.StringVar(&f.destPrefix, "dest-prefix", "", "what the copies begin with instead; the same without it")
	fs.BoolVar(&f.noDestPrefix, "no-dest-prefix", false, "take the prefix off")
	fs.Int64Var(&f.rev, "rev", 0, "copy only what changes from this revision on")
	fs.IntVar(&f.maxOps, "max-txn-ops", mirror.DefaultMaxOps, "changes in one transaction of the destination, at most")
	fs.StringVar(&f.progress, "progress-key", "", "key of the destination that notes how far the copy is")
	fs.BoolVar(&f.deleteExtra, "delete-extra", false, "when comparing, delete keys that only the destination has")
	fs.BoolVar(&f.dest.insecure, "dest-insecure-transport", true, "talk to the destination in the clear unless its endpoint or a TLS flag asks for TLS")
	fs.StringVar(&f.dest.cert, "dest-cert", "", "client certificate for the destination, a PEM file")
	fs.StringVar(&f.dest.key, "dest-key", "", "key of that certificate, a PEM file")
	fs.StringVar(&f.dest.ca, "dest-cacert", "", "CA that signed the certificates of the destination, a PEM file")
	fs.StringVar(&f.dest.user, "dest-user", "", "name[:password] to log in with at the destination")
	fs.StringVar(&f.dest.password, "dest-password", "", "password of --dest-user")
}

// run mirrors until ctx ends or something fails.
func (f *mirrorFlags) run(ctx context.Context, s *settings, from *client.Client, p *printer, dest string) error {
	f.dest.dialTimeout, f.dest.keepAlive, f.dest.keepAliveWait, f.dest.extra = s.dialTimeout, s.keepAlive, s.keepAliveWait, s.extra
	to, err := f.dest.connect(strings.Split(dest, ",")...)
	if err != nil {
		return err
	}
	defer to.Close() //nolint:errcheck // gives nothing but nil
	m := mirror.New(from, to, f.options()...)
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	report := time.NewTicker(mirrorReport)
	defer report.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-report.C:
			done := m.Stats()
			if err := p.show(view{simple: func(w *lines) { w.line("%d", done.Puts+done.Deletes) }, json: done}); err != nil {
				return err
			}
		}
	}
}

// options gives what the flags mean.
func (f *mirrorFlags) options() []mirror.Option {
	opts := []mirror.Option{mirror.Keys(f.prefix), mirror.Progress(f.progress), mirror.MaxOps(f.maxOps), mirror.From(f.rev)}
	switch {
	case f.noDestPrefix:
		opts = append(opts, mirror.Into(""))
	case f.destPrefix != "":
		opts = append(opts, mirror.Into(f.destPrefix))
	}
	if !f.deleteExtra {
		opts = append(opts, mirror.KeepExtra())
	}
	return opts
}

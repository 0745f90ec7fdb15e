package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/kvpb"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

// watchFlags is the flags of watch.
type watchFlags struct {
	prefix, prevKV, progress bool
	rev                      int64
}

func newWatch(s *settings) *cobra.Command {
	var f watchFlags
	c := &cobra.Command{
		Use:   "watch [key] [range_end] [-- command [args...]]",
		Short: "Print the changes of a key, or several, as they happen",
		Long: `Print the changes of a key, or several, as they happen, until interrupted. The key can also come from
ETCDCTL_WATCH_KEY and ETCDCTL_WATCH_RANGE_END. A command after -- is run for each change, with ETCD_WATCH_REVISION,
ETCD_WATCH_EVENT_TYPE, ETCD_WATCH_KEY and ETCD_WATCH_VALUE (the last three quoted) in its environment.`,
		Example: "  coordd watch --prefix /config/\n  coordd watch --rev 100 greeting\n  coordd watch greeting -- sh -c 'echo $ETCD_WATCH_VALUE'",
		RunE: func(cmd *cobra.Command, args []string) error {
			command := []string(nil)
			if dash := cmd.ArgsLenAtDash(); dash >= 0 {
				args, command = args[:dash], args[dash:]
			}
			if len(args) == 0 {
				args = s.watchKeys()
			}
			if len(args) > 2 {
				return fail(exitArguments, "watch takes a key and perhaps the end of a range; a command comes after --")
			}
			key, opts, err := f.options(args)
			if err != nil {
				return err
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				return f.follow(ctx, c.Watch(ctx, key, opts...), p, command)
			})
		},
	}
	c.Flags().BoolVar(&f.prefix, "prefix", false, "all keys that begin with the key")
	c.Flags().Int64Var(&f.rev, "rev", 0, "begin with the changes of this revision; 0 is from now on")
	c.Flags().BoolVar(&f.prevKV, "prev-kv", false, "print the pair as it was before, too")
	c.Flags().BoolVar(&f.progress, "progress-notify", false, "print now and then how far the watch has come")
	return c
}

// watchKeys gives the key and the end of the range from the environment.
func (s *settings) watchKeys() (args []string) {
	key, ok := s.lookup("ETCDCTL_WATCH_KEY")
	if !ok || key == "" {
		return nil
	}
	args = append(args, key)
	if end, ok := s.lookup("ETCDCTL_WATCH_RANGE_END"); ok && end != "" {
		args = append(args, end)
	}
	return args
}

// options gives the key and the options that the flags mean.
func (f *watchFlags) options(args []string) (string, []client.WatchOption, error) {
	key, keys, err := span(args, f.prefix, false)
	if err != nil {
		return "", nil, err
	}
	opts := []client.WatchOption{client.WithRev(f.rev)}
	for _, o := range keys {
		opts = append(opts, o)
	}
	if f.prevKV {
		opts = append(opts, client.WithPrevKV())
	}
	if f.progress {
		opts = append(opts, client.WithProgressNotify())
	}
	return key, opts, nil
}

// follow prints what a watcher sees until it ends.
func (f *watchFlags) follow(ctx context.Context, w *client.Watcher, p *printer, command []string) error {
	for r, err := range w.All() {
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(p.errOut, "watch was canceled (%v)\n", err) //nolint:errcheck // the error is returned too
			return &ExitError{exitInterrupted, &watchEnded{err}}
		}
		if err := p.show(watchView(r)); err != nil {
			return err
		}
		for _, e := range r.Events {
			if len(command) == 0 {
				break
			}
			if err := execute(ctx, p, command, r, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchEnded says that the server ended a watch; why was said before.
type watchEnded struct{ why error }

// Error gives the words of etcdctl.
func (e *watchEnded) Error() string { return "watch is canceled by the server" }

// Unwrap gives the reason.
func (e *watchEnded) Unwrap() error { return e.why }

// execute runs the command for an event.
func execute(ctx context.Context, p *printer, command []string, r *client.WatchResponse, e *kvpb.Event) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(),
		fmt.Sprintf("ETCD_WATCH_REVISION=%d", r.Header.GetRevision()),
		fmt.Sprintf("ETCD_WATCH_EVENT_TYPE=%q", e.Type),
		fmt.Sprintf("ETCD_WATCH_KEY=%q", e.Kv.GetKey()),
		fmt.Sprintf("ETCD_WATCH_VALUE=%q", e.Kv.GetValue()),
	)
	c.Stdout, c.Stderr = p.out, p.errOut
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return &ExitError{exit.ExitCode(), fmt.Errorf("command %q failed for the change of %q at revision %d: %w", command[0], e.Kv.GetKey(), e.Kv.GetModRevision(), err)}
		}
		return fail(exitIO, "cannot run command %q: %w", command[0], err)
	}
	return nil
}

// watchView gives the view of what a watcher saw.
func watchView(r *client.WatchResponse) view {
	type form struct {
		Header          *rpcpb.ResponseHeader
		Events          []*kvpb.Event
		CompactRevision int64
		Canceled        bool
		Created         bool
	}
	return view{
		simple: func(w *lines) {
			if r.IsProgress() {
				w.line("progress notify: %d", r.Revision)
			}
			for _, e := range r.Events {
				w.line("%s", e.Type)
				if e.PrevKv != nil {
					w.kv(e.PrevKv, false)
				}
				w.kv(e.Kv, false)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			for _, e := range r.Events {
				w.field("Type", e.Type)
				if e.PrevKv != nil {
					w.kvFields("Prev", e.PrevKv)
				}
				w.kvFields("", e.Kv)
			}
		},
		json:    form{Header: r.Header, Events: r.Events, Created: r.Created},
		message: &rpcpb.WatchResponse{Header: r.Header, Events: r.Events, Created: r.Created},
	}
}

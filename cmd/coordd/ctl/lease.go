package ctl

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

func newLease(s *settings) *cobra.Command {
	return group("lease", "Work with leases, which delete their keys when they end",
		newLeaseGrant(s), newLeaseRevoke(s), newLeaseTimeToLive(s), newLeaseList(s), newLeaseKeepAlive(s))
}

// leaseID reads a lease id in hex.
func leaseID(text string) (client.LeaseID, error) {
	id, err := strconv.ParseInt(text, 16, 64)
	if err != nil {
		return 0, fail(exitArguments, "bad lease ID %q; it is a number in hex, as `lease grant` prints it", text)
	}
	return client.LeaseID(id), nil
}

// leaseJSON is the form of lease answers in JSON, with the header's fields beside their own.
type leaseJSON struct {
	*rpcpb.ResponseHeader
	ID         int64    `json:"id"`
	TTL        int64    `json:"ttl"`
	GrantedTTL *int64   `json:"granted-ttl,omitempty"`
	Keys       [][]byte `json:"keys,omitempty"`
	Error      *string  `json:"error,omitempty"`
}

func newLeaseGrant(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "grant <ttl>",
		Short:   "Make a lease that lives for ttl seconds after its last renewal",
		Example: "  coordd lease grant 60",
		Args:    arguments(1, 1, "a time to live in seconds"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ttl, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return fail(exitArguments, "bad TTL %q; it is a number of seconds", args[0])
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.Grant(ctx, ttl)
				if err != nil {
					return err
				}
				return p.show(view{
					simple: func(w *lines) { w.line("lease %016x granted with TTL(%ds)", r.ID, r.TTL) },
					fields: func(w *lines) {
						w.header(r.Header)
						w.field("ID", r.ID)
						w.field("TTL", r.TTL)
					},
					json:    leaseJSON{ResponseHeader: r.Header, ID: r.ID, TTL: r.TTL, Error: &r.Error},
					message: r,
				})
			})
		},
	}
}

func newLeaseRevoke(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke <leaseID>",
		Short:   "End a lease and delete its keys",
		Example: "  coordd lease revoke 32695410dcc0ca06",
		Args:    arguments(1, 1, "a lease ID in hex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := leaseID(args[0])
			if err != nil {
				return err
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.Revoke(ctx, id)
				if err != nil {
					return err
				}
				return p.show(view{
					simple:  func(w *lines) { w.line("lease %016x revoked", int64(id)) },
					fields:  func(w *lines) { w.header(r.Header) },
					json:    r,
					message: r,
				})
			})
		},
	}
}

func newLeaseTimeToLive(s *settings) *cobra.Command {
	var keys bool
	c := &cobra.Command{
		Use:     "timetolive <leaseID>",
		Short:   "Tell how long a lease has left",
		Example: "  coordd lease timetolive 32695410dcc0ca06 --keys",
		Args:    arguments(1, 1, "a lease ID in hex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := leaseID(args[0])
			if err != nil {
				return err
			}
			var opts []client.TimeToLiveOption
			if keys {
				opts = append(opts, client.WithAttachedKeys())
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.TimeToLive(ctx, id, opts...)
				if err != nil {
					return err
				}
				return p.show(timeToLiveView(r, keys))
			})
		},
	}
	c.Flags().BoolVar(&keys, "keys", false, "print the keys of the lease, too")
	return c
}

func timeToLiveView(r *rpcpb.LeaseTimeToLiveResponse, keys bool) view {
	return view{
		simple: func(w *lines) {
			if r.GrantedTTL == 0 && r.TTL == -1 {
				w.line("lease %016x already expired", r.ID)
				return
			}
			text := ""
			if keys {
				names := make([]string, len(r.Keys))
				for i, k := range r.Keys {
					names[i] = w.text(k)
				}
				text = ", attached keys([" + strings.Join(names, " ") + "])"
			}
			w.line("lease %016x granted with TTL(%ds), remaining(%ds)%s", r.ID, r.GrantedTTL, r.TTL, text)
		},
		fields: func(w *lines) {
			w.header(r.Header)
			w.field("ID", r.ID)
			w.field("TTL", r.TTL)
			w.field("GrantedTTL", r.GrantedTTL)
			for _, k := range r.Keys {
				w.field("Key", w.quoted(k))
			}
		},
		json:    leaseJSON{ResponseHeader: r.Header, ID: r.ID, TTL: r.TTL, GrantedTTL: &r.GrantedTTL, Keys: r.Keys},
		message: r,
	}
}

func newLeaseList(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the leases",
		Example: "  coordd lease list",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.Leases(ctx)
				if err != nil {
					return err
				}
				return p.show(leasesView(r))
			})
		},
	}
}

func leasesView(r *rpcpb.LeaseLeasesResponse) view {
	type lease struct {
		ID int64 `json:"id"`
	}
	form := struct {
		*rpcpb.ResponseHeader
		Leases []lease `json:"leases"`
	}{ResponseHeader: r.Header, Leases: []lease{}}
	for _, l := range r.Leases {
		form.Leases = append(form.Leases, lease{l.ID})
	}
	return view{
		simple: func(w *lines) {
			w.line("found %d leases", len(r.Leases))
			for _, l := range r.Leases {
				w.line("%016x", l.ID)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			for _, l := range r.Leases {
				w.field("ID", l.ID)
			}
		},
		json:    form,
		message: r,
	}
}

func newLeaseKeepAlive(s *settings) *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:     "keep-alive <leaseID>",
		Short:   "Renew a lease until interrupted",
		Example: "  coordd lease keep-alive 32695410dcc0ca06\n  coordd lease keep-alive --once 32695410dcc0ca06",
		Args:    arguments(1, 1, "a lease ID in hex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := leaseID(args[0])
			if err != nil {
				return err
			}
			if once {
				return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
					r, err := c.KeepAliveOnce(ctx, id)
					if err != nil {
						return err
					}
					return p.show(keepAliveView(r))
				})
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				return keepAlive(c.KeepAlive(ctx, id), p)
			})
		},
	}
	c.Flags().BoolVar(&once, "once", false, "renew once and end")
	return c
}

// keepAlive prints renewals until the lease is gone.
func keepAlive(k *client.Keeper, p *printer) error {
	defer k.Close()
	for {
		select {
		case r := <-k.Renewed():
			if err := p.show(keepAliveView(r)); err != nil {
				return err
			}
		case <-k.Done():
			if !errors.Is(k.Err(), errs.ErrLeaseNotFound) || p.format != "simple" {
				return k.Err()
			}
			return p.show(view{simple: func(w *lines) { w.line("lease %016x expired or revoked.", int64(k.ID())) }})
		}
	}
}

func keepAliveView(r *rpcpb.LeaseKeepAliveResponse) view {
	return view{
		simple: func(w *lines) { w.line("lease %016x keepalived with TTL(%d)", r.ID, r.TTL) },
		fields: func(w *lines) {
			w.header(r.Header)
			w.field("ID", r.ID)
			w.field("TTL", r.TTL)
		},
		json:    leaseJSON{ResponseHeader: r.Header, ID: r.ID, TTL: r.TTL},
		message: r,
	}
}

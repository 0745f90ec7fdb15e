package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
)

func newElect(s *settings) *cobra.Command {
	var listen bool
	var ttl int
	c := &cobra.Command{
		Use:   "elect <name> [proposal]",
		Short: "Lead an election, or follow who leads it",
		Long: `Take part in an election with a value, such as an address. When it is won, print key and value, and lead until interrupted.
With --listen, print key and value of each leader and of each value a leader proclaims, until interrupted; that nobody leads is
printed on the standard error.`,
		Example: "  coordd elect scheduler 10.0.0.1:8080\n  coordd elect --listen scheduler",
		Args:    arguments(1, 2, "a name and, without --listen, a proposal"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if listen == (len(args) == 2) {
				return fail(exitArguments, "elect takes a proposal or --listen. Try `%s --help`", cmd.CommandPath())
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				if listen {
					return observe(ctx, c, p, args[0])
				}
				return s.campaign(ctx, c, p, args[0], args[1], ttl)
			})
		},
	}
	c.Flags().BoolVarP(&listen, "listen", "l", false, "follow the election without taking part")
	c.Flags().IntVar(&ttl, "ttl", lockTTL, "seconds the leadership stays taken if this process dies")
	return c
}

// campaign takes part until the leadership is lost or ctx ends.
func (s *settings) campaign(ctx context.Context, c *client.Client, p *printer, name, value string, ttl int) (err error) {
	session, err := s.session(ctx, c, ttl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, returned(session.Close())) }()
	e := concurrency.NewElection(session, name)
	if err := e.Campaign(ctx, value); err != nil {
		return err
	}
	held, done := e.WhileLeader(ctx)
	defer done()
	r, err := c.Get(held, e.Key())
	if err != nil {
		return lost(held, err)
	}
	if err := p.show(rangeView(r, false)); err != nil {
		return err
	}
	<-held.Done()
	return lost(held, nil)
}

// observe prints what happens in an election.
func observe(ctx context.Context, c *client.Client, p *printer, name string) error {
	for l, err := range concurrency.Observe(ctx, c, name).All() {
		if err != nil {
			return err
		}
		if l.Change == concurrency.Vacant && p.format == "simple" {
			if _, err := io.WriteString(p.errOut, "nobody leads\n"); err != nil {
				return fail(exitIO, "cannot write to the standard error: %w", err)
			}
			continue
		}
		if err := p.show(leadershipView(l)); err != nil {
			return err
		}
	}
	return nil
}

// leadershipView gives the view of a change in an election.
func leadershipView(l concurrency.Leadership) view {
	return view{
		simple: func(w *lines) {
			w.line("%s", w.text([]byte(l.Leader.Key)))
			w.line("%s", w.text([]byte(l.Leader.Value)))
		},
		fields: func(w *lines) {
			w.field("Change", fmt.Sprintf("%q", l.Change))
			w.field("Key", w.quoted([]byte(l.Leader.Key)))
			w.field("Value", w.quoted([]byte(l.Leader.Value)))
			w.field("FencingToken", l.Leader.Token)
			w.field("Lease", int64(l.Leader.Lease))
			w.field("Revision", l.Revision)
		},
		json: map[string]any{
			"change": l.Change.String(), "revision": l.Revision, "key": []byte(l.Leader.Key), "value": []byte(l.Leader.Value),
			"fencing_token": l.Leader.Token, "lease": int64(l.Leader.Lease),
		},
	}
}

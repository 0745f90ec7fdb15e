package ctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/client"
	"github.com/coordd/coordd/client/concurrency"
)

// lockTTL is the default time to live of the session of lock and elect, in seconds: that of etcdctl.
const lockTTL = 10

// stopTime is how long a command may take to end after it was asked to.
const stopTime = 10 * time.Second

func newLock(s *settings) *cobra.Command {
	var ttl int
	c := &cobra.Command{
		Use:   "lock [flags] <name> [command [args...]]",
		Short: "Take a lock and hold it, or run a command under it",
		Long: `Wait for a lock and take it. Without a command, print its key and hold it until interrupted. With one, run it
and give the lock back when it ends; the exit code is that of the command. The command is killed as soon as the lock is
lost, with all it has started unless it runs on a terminal.

In its environment: ETCD_LOCK_KEY and COORDD_LOCK_KEY, the key of the lock; ETCD_LOCK_REV, a revision at which it is held;
COORDD_LOCK_TOKEN, the fencing token, which grows with each holder; COORDD_LOCK_LEASE, the lease in hex.

To take a lock that is named list, write: coordd lock -- list`,
		Example: "  coordd lock jobs/nightly\n  coordd lock jobs/nightly sh -c 'echo $COORDD_LOCK_TOKEN'\n  coordd lock --ttl 30 jobs/nightly make report",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, command, err := nameAndCommand(cmd, args)
			if err != nil {
				return err
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				return s.lock(ctx, cmd, c, p, name, ttl, command)
			})
		},
	}
	c.Flags().IntVar(&ttl, "ttl", lockTTL, "seconds the lock stays taken if this process dies")
	c.Flags().SetInterspersed(false) // the flags after the name are of the command
	c.AddCommand(newLockList(s))
	return c
}

// nameAndCommand takes a name and a command from the arguments. Flags may stand between the two, too.
func nameAndCommand(cmd *cobra.Command, args []string) (string, []string, error) {
	if len(args) == 0 || args[0] == "" {
		return "", nil, fail(exitArguments, "%s takes a name and perhaps a command. Try `%s --help`", cmd.CommandPath(), cmd.CommandPath())
	}
	name := args[0]
	if err := cmd.Flags().Parse(args[1:]); err != nil {
		return "", nil, &ExitError{exitArguments, err}
	}
	return name, cmd.Flags().Args(), nil
}

// session makes a session within the time for a command.
func (s *settings) session(ctx context.Context, c *client.Client, ttl int) (*concurrency.Session, error) {
	if ttl <= 0 {
		return nil, fail(exitArguments, "bad --ttl %d; it is a number of seconds above zero", ttl)
	}
	ctx, cancel := context.WithTimeout(ctx, s.commandTimeout)
	defer cancel()
	return concurrency.NewSession(ctx, c, concurrency.WithTTL(time.Duration(ttl)*time.Second))
}

// lock takes a lock, and holds it as long as the command runs or, without one, until it is lost or ctx ends.
func (s *settings) lock(ctx context.Context, cmd *cobra.Command, c *client.Client, p *printer, name string, ttl int, command []string) (err error) {
	session, err := s.session(ctx, c, ttl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, returned(session.Close())) }()
	m := concurrency.NewMutex(session, name)
	if err := m.Lock(ctx); err != nil {
		return err
	}
	held, done := m.WhileHeld(ctx)
	defer done()
	r, err := c.Get(held, m.Key())
	if err != nil {
		return lost(held, err)
	}
	if len(command) > 0 {
		env := []string{
			"ETCD_LOCK_KEY=" + m.Key(), "COORDD_LOCK_KEY=" + m.Key(),
			fmt.Sprintf("ETCD_LOCK_REV=%d", r.Header.Revision),
			fmt.Sprintf("COORDD_LOCK_TOKEN=%d", m.FencingToken()),
			fmt.Sprintf("COORDD_LOCK_LEASE=%x", int64(session.Lease())),
		}
		return underLock(ctx, held, cmd, command, env)
	}
	if err := p.show(rangeView(r, false)); err != nil {
		return err
	}
	<-held.Done()
	return lost(held, nil)
}

// returned explains an error of giving something back.
func returned(err error) error {
	if err != nil {
		return fmt.Errorf("what was held could not be given back, and ends with its time to live: %w", err)
	}
	return nil
}

// lost gives why something that was held is held no longer, and otherwise if it is.
func lost(held context.Context, otherwise error) error {
	why := context.Cause(held)
	switch {
	case why == nil:
		return otherwise
	case errors.Is(why, concurrency.ErrSessionExpired):
		return fmt.Errorf("session expired: %w", why)
	}
	return why
}

// underLock runs a command until it ends. It is killed when held ends, but only asked to end if ctx, which is the user's, ends.
func underLock(ctx, held context.Context, cmd *cobra.Command, command, env []string) error {
	c := exec.CommandContext(held, command[0], command[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdin, c.Stdout, c.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	separate(c)
	c.WaitDelay = stopTime
	c.Cancel = func() error { return end(c, ctx.Err() == nil) }
	err := c.Run()
	if held.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("command %q was killed: %w", command[0], lost(held, err))
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return &ExitError{Code: exit.ExitCode()} // it has said itself what there is to say
	case errors.As(err, &exit):
		return fail(exitError, "command %q: %w", command[0], err)
	}
	return fail(exitIO, "cannot run command %q: %w", command[0], err)
}

func newLockList(s *settings) *cobra.Command {
	var limit int64
	c := &cobra.Command{
		Use:     "list <name>",
		Short:   "List who holds a lock, or leads an election, and who waits",
		Example: "  coordd lock list jobs/nightly\n  coordd lock list jobs/nightly -w table",
		Args:    arguments(1, 1, "the name of a lock"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.ListLocks(ctx, args[0], limit)
				if err != nil {
					return err
				}
				return p.show(locksView(r))
			})
		},
	}
	c.Flags().Int64Var(&limit, "limit", 0, "list no more waiters than this; 0 lists all")
	return c
}

// locksView gives the view of a lock's holders and queue.
func locksView(r *coorddpb.ListLocksResponse) view {
	each := func(do func(role string, e *coorddpb.LockEntry)) {
		for _, e := range r.Holders {
			do("holder", e)
		}
		for _, e := range r.Waiters {
			do("waiter", e)
		}
	}
	return view{
		simple: func(w *lines) {
			each(func(role string, e *coorddpb.LockEntry) {
				w.line("%s %s lease %016x token %d ttl %s%s", role, w.text(e.Key), e.Lease, e.FencingToken, remaining(e), sharing(e))
			})
			if more := r.Waiting - int64(len(r.Waiters)); more > 0 {
				w.line("and %d more wait", more)
			}
			if len(r.Holders) == 0 {
				w.line("nobody holds it")
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			each(func(role string, e *coorddpb.LockEntry) {
				w.field("Role", fmt.Sprintf("%q", role))
				w.field("Key", w.quoted(e.Key))
				w.field("Lease", e.Lease)
				w.field("FencingToken", e.FencingToken)
				w.field("GrantedTTLMillis", e.GrantedTtlMs)
				w.field("RemainingTTLMillis", e.RemainingTtlMs)
				w.field("Shared", e.Shared)
			})
			w.field("Waiting", r.Waiting)
		},
		table: func() [][]string {
			rows := [][]string{{"ROLE", "KEY", "LEASE", "TOKEN", "TTL", "SHARED"}}
			each(func(role string, e *coorddpb.LockEntry) {
				rows = append(rows, []string{role, string(e.Key), fmt.Sprintf("%016x", e.Lease), fmt.Sprint(e.FencingToken), remaining(e), fmt.Sprint(e.Shared)})
			})
			return rows
		},
		json:    r,
		message: r,
	}
}

// remaining tells how much of the time to live is left.
func remaining(e *coorddpb.LockEntry) string {
	granted := time.Duration(e.GrantedTtlMs) * time.Millisecond
	if e.RemainingTtlMs < 0 {
		return "?/" + granted.String()
	}
	return (time.Duration(e.RemainingTtlMs) * time.Millisecond).Round(100*time.Millisecond).String() + "/" + granted.String()
}

// sharing tells of one who shares the lock.
func sharing(e *coorddpb.LockEntry) string {
	if e.Shared {
		return " shared"
	}
	return ""
}

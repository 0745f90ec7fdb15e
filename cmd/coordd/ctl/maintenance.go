package ctl

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

func newAlarm(s *settings) *cobra.Command {
	alarm := func(use, short string, ask func(ctx context.Context, c *client.Client) (*rpcpb.AlarmResponse, error)) *cobra.Command {
		return &cobra.Command{
			Use:     use,
			Short:   short,
			Example: "  coordd alarm " + use,
			Args:    arguments(0, 0, "no arguments"),
			RunE: func(cmd *cobra.Command, _ []string) error {
				return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
					r, err := ask(ctx, c)
					if err != nil {
						return err
					}
					return p.show(alarmView(r))
				})
			},
		}
	}
	return group("alarm", "Look at the alarms and switch them off",
		alarm("list", "List the alarms that are on", func(ctx context.Context, c *client.Client) (*rpcpb.AlarmResponse, error) {
			return c.Alarms(ctx)
		}),
		alarm("disarm", "Switch all alarms off", func(ctx context.Context, c *client.Client) (*rpcpb.AlarmResponse, error) {
			return c.AlarmDisarm(ctx, nil)
		}))
}

func alarmView(r *rpcpb.AlarmResponse) view {
	return view{
		simple: func(w *lines) {
			for _, a := range r.Alarms {
				w.line("memberID:%d alarm:%s ", a.MemberID, a.Alarm)
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			for _, a := range r.Alarms {
				w.id("MemberID", a.MemberID)
				w.field("AlarmType", a.Alarm)
				w.line("")
			}
		},
		json:    r,
		message: r,
	}
}

func newMoveLeader(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "move-leader <memberID>",
		Short:   "Hand the leadership to a member",
		Long:    "Hand the leadership to a member. The leader must be among --endpoints.",
		Example: "  coordd move-leader c89feb932daef420 --endpoints m1:2379,m2:2379,m3:2379",
		Args:    arguments(1, 1, "a member ID in hex"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := strconv.ParseUint(args[0], 16, 64)
			if err != nil {
				return fail(exitArguments, "bad member ID %q; it is a number in hex, as `member list` prints it", args[0])
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				leader, id, err := findLeader(ctx, c, s.endpoints)
				if err != nil {
					return err
				}
				r, err := c.MoveLeader(ctx, leader, to)
				if err != nil {
					return err
				}
				return p.show(view{
					simple:  func(w *lines) { w.line("Leadership transferred from %x to %x", id, to) },
					fields:  func(w *lines) { w.header(r.Header) },
					json:    r,
					message: r,
				})
			})
		},
	}
}

// findLeader gives the endpoint and the id of the leader.
func findLeader(ctx context.Context, c *client.Client, endpoints []string) (string, uint64, error) {
	var last error
	for _, e := range endpoints {
		st, err := c.Status(ctx, e)
		if err != nil {
			last = err
			continue
		}
		if id := st.GetHeader().GetMemberId(); id != 0 && id == st.Leader {
			return e, id, nil
		}
	}
	if last != nil {
		return "", 0, last
	}
	return "", 0, fail(exitArguments, "no leader endpoint given at %v; name all members with --endpoints", endpoints)
}

func newSnapshot(s *settings) *cobra.Command {
	return group("snapshot", "Back the data up", newSnapshotSave(s))
}

func newSnapshotSave(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:     "save <file>",
		Short:   "Save the data of one member to a file",
		Long:    "Save the data of one member to a file, whole and checked or not at all. It takes as long as it takes.",
		Example: "  coordd snapshot save backup.db --endpoints m1:2379",
		Args:    arguments(1, 1, "the name of a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(s.endpoints) != 1 {
				return fail(exitArguments, "snapshot must be requested to one selected node, not multiple %v; give one with --endpoints", s.endpoints)
			}
			return s.follow(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				version, err := save(ctx, c, s.endpoints[0], args[0])
				if err != nil {
					return err
				}
				return p.show(view{simple: func(w *lines) {
					w.line("Snapshot saved at %s", args[0])
					if version != "" {
						w.line("Server version %s", version)
					}
				}})
			})
		},
	}
}

// save writes a snapshot beside its final name and, when it is whole and durable, gives it that name.
func save(ctx context.Context, c *client.Client, endpoint, path string) (version string, err error) {
	snap, err := c.Snapshot(ctx, endpoint)
	if err != nil {
		return "", err
	}
	defer snap.Close() //nolint:errcheck // gives nothing but nil
	part := path + ".part"
	if err := writeFile(part, snap); err != nil {
		_ = os.Remove(part) // it may not even exist; the first error is the one to tell
		return "", err
	}
	if err := os.Rename(part, path); err != nil {
		return "", fail(exitIO, "cannot give the file its name: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return "", fail(exitIO, "cannot make the name of %s durable: %w", path, err)
	}
	return snap.Version(), nil
}

// writeFile makes a durable file of what can be read.
func writeFile(name string, from io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fail(exitIO, "cannot create the file: %w", err)
	}
	if _, err := io.Copy(f, from); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fail(exitIO, "cannot make %s durable: %w", name, err)
	}
	return nil
}

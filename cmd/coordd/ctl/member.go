package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/client"
)

func newMember(s *settings) *cobra.Command {
	return group("member", "Look at the members of the cluster", newMemberList(s))
}

func newMemberList(s *settings) *cobra.Command {
	var how string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the members",
		Long:    "List the members: id, whether it ever started, name, peer URLs, client URLs, and whether it is a learner.",
		Example: "  coordd member list -w table",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			local, err := consistency(how)
			if err != nil {
				return err
			}
			var opts []client.MemberListOption
			if local {
				opts = append(opts, client.FromOneMember())
			}
			return s.run(cmd, func(ctx context.Context, c *client.Client, p *printer) error {
				r, err := c.MemberList(ctx, opts...)
				if err != nil {
					return err
				}
				return p.show(memberListView(r, s.hex))
			})
		},
	}
	c.Flags().StringVar(&how, "consistency", "l", "l: linearizable, or s: what the member asked knows")
	return c
}

func memberListView(r *rpcpb.MemberListResponse, hex bool) view {
	rows := [][]string{{"ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner"}}
	for _, m := range r.Members {
		status := "started"
		if m.Name == "" {
			status = "unstarted"
		}
		rows = append(rows, []string{
			fmt.Sprintf("%x", m.ID), status, m.Name, strings.Join(m.PeerURLs, ","), strings.Join(m.ClientURLs, ","), strconv.FormatBool(m.IsLearner),
		})
	}
	return view{
		simple: func(w *lines) {
			for _, row := range rows[1:] {
				w.line("%s", strings.Join(row, ", "))
			}
		},
		fields: func(w *lines) {
			w.header(r.Header)
			for _, m := range r.Members {
				w.id("ID", m.ID)
				w.field("Name", strconv.Quote(m.Name))
				for _, u := range m.PeerURLs {
					w.field("PeerURL", strconv.Quote(u))
				}
				for _, u := range m.ClientURLs {
					w.field("ClientURL", strconv.Quote(u))
				}
				w.field("IsLearner", m.IsLearner)
				w.line("")
			}
		},
		table:   func() [][]string { return rows },
		json:    memberListJSON(r, hex),
		message: r,
	}
}

// memberListJSON gives the list for JSON; with hex the ids are strings.
func memberListJSON(r *rpcpb.MemberListResponse, hex bool) any {
	if !hex {
		return r
	}
	type header struct {
		ClusterID string `json:"cluster_id"`
		MemberID  string `json:"member_id"`
		RaftTerm  uint64 `json:"raft_term,omitempty"`
	}
	type member struct {
		ID         string   `json:"ID"`
		Name       string   `json:"name,omitempty"`
		PeerURLs   []string `json:"peerURLs,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
		IsLearner  bool     `json:"isLearner,omitempty"`
	}
	out := struct {
		Header  header   `json:"header"`
		Members []member `json:"members"`
	}{Header: header{fmt.Sprintf("%x", r.Header.GetClusterId()), fmt.Sprintf("%x", r.Header.GetMemberId()), r.Header.GetRaftTerm()}}
	for _, m := range r.Members {
		out.Members = append(out.Members, member{fmt.Sprintf("%x", m.ID), m.Name, m.PeerURLs, m.ClientURLs, m.IsLearner})
	}
	return out
}

package client

import (
	"context"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// at sends a call once to the endpoint of that name, over a connection of its own if the client does
// not have it. The empty name means any.
func (c *Client) at(ctx context.Context, name string, k call, req, resp any) error {
	e, done, err := c.endpointNamed(name)
	if err != nil {
		return err
	}
	defer done()
	for renewed := false; ; renewed = true {
		a := c.try(ctx, e, k, req, resp, 0)
		if a.err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return c.ended(ctx, k, e, a, nil)
		}
		v := c.judge(k, a)
		if !v.renew || renewed {
			return conclude(k, e, v)
		}
		c.tokens.expire(a.token)
	}
}

// endpointNamed gives an endpoint, and a function to call when done with it.
func (c *Client) endpointNamed(name string) (*endpoint, func(), error) {
	if name == "" {
		e, err := c.pool.pick(nil)
		return e, func() { c.pool.release(e) }, err
	}
	if e, ok := c.pool.named(name); ok {
		return e, func() { c.pool.release(e) }, nil
	}
	conn, err := c.opts.connect(name)
	if err != nil {
		return nil, nil, err
	}
	// The only error of Close is that the connection is closed already.
	return &endpoint{name: name, conn: conn, dialled: conn}, func() { _ = conn.Close() }, nil
}

// Status gives how the member at an endpoint does: version, size, leader, position in the log, alarms. The member
// answers by itself.
func (c *Client) Status(ctx context.Context, endpoint string) (*rpcpb.StatusResponse, error) {
	resp := new(rpcpb.StatusResponse)
	k := call{method: services.Maintenance_Status_FullMethodName, idempotent: true, local: true}
	if err := c.at(ctx, endpoint, k, new(rpcpb.StatusRequest), resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Hash gives a hash over all the data of the member at an endpoint.
func (c *Client) Hash(ctx context.Context, endpoint string) (*rpcpb.HashResponse, error) {
	resp := new(rpcpb.HashResponse)
	k := call{method: services.Maintenance_Hash_FullMethodName, idempotent: true, local: true}
	if err := c.at(ctx, endpoint, k, new(rpcpb.HashRequest), resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// HashKV gives a hash over the keys of the member at an endpoint up to a revision, 0 for the current one. Members that
// agree on the compact revision agree on the hash.
func (c *Client) HashKV(ctx context.Context, endpoint string, rev int64) (*rpcpb.HashKVResponse, error) {
	resp := new(rpcpb.HashKVResponse)
	k := call{method: services.Maintenance_HashKV_FullMethodName, idempotent: true, local: true}
	if err := c.at(ctx, endpoint, k, &rpcpb.HashKVRequest{Revision: rev}, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Defragment has the member at an endpoint give the free space of its file back.
func (c *Client) Defragment(ctx context.Context, endpoint string) (*rpcpb.DefragmentResponse, error) {
	resp := new(rpcpb.DefragmentResponse)
	k := call{method: services.Maintenance_Defragment_FullMethodName, local: true}
	if err := c.at(ctx, endpoint, k, new(rpcpb.DefragmentRequest), resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// MoveLeader hands the leadership to a member. It has to reach the leader, whose endpoint is given; any other answers
// errs.ErrNotLeader. Without an endpoint any is asked.
func (c *Client) MoveLeader(ctx context.Context, endpoint string, to uint64) (*rpcpb.MoveLeaderResponse, error) {
	resp := new(rpcpb.MoveLeaderResponse)
	k := call{method: services.Maintenance_MoveLeader_FullMethodName}
	if err := c.at(ctx, endpoint, k, &rpcpb.MoveLeaderRequest{TargetID: to}, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// Alarms gives the alarms that are on.
func (c *Client) Alarms(ctx context.Context) (*rpcpb.AlarmResponse, error) {
	return c.alarm(ctx, &rpcpb.AlarmRequest{Action: rpcpb.AlarmRequest_GET})
}

// AlarmDisarm switches an alarm off; the zero member and type mean all that are on. The answer lists those switched off.
func (c *Client) AlarmDisarm(ctx context.Context, which *rpcpb.AlarmMember) (*rpcpb.AlarmResponse, error) {
	if which.GetMemberID() != 0 || which.GetAlarm() != rpcpb.AlarmType_NONE {
		return c.alarm(ctx, &rpcpb.AlarmRequest{Action: rpcpb.AlarmRequest_DEACTIVATE, MemberID: which.MemberID, Alarm: which.Alarm})
	}
	all, err := c.Alarms(ctx)
	if err != nil {
		return nil, err
	}
	done := &rpcpb.AlarmResponse{Header: all.Header}
	for _, a := range all.Alarms {
		one, err := c.AlarmDisarm(ctx, a)
		if err != nil {
			return nil, err
		}
		done.Header, done.Alarms = one.Header, append(done.Alarms, one.Alarms...)
	}
	return done, nil
}

func (c *Client) alarm(ctx context.Context, req *rpcpb.AlarmRequest) (*rpcpb.AlarmResponse, error) {
	resp := new(rpcpb.AlarmResponse)
	k := call{method: services.Maintenance_Alarm_FullMethodName, idempotent: true}
	if err := c.invoke(ctx, k, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

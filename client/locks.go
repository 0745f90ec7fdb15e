package client

import (
	"context"

	"github.com/coordd/coordd/api/coorddpb"
	"github.com/coordd/coordd/api/services"
)

// ListLocks tells who holds the lock of a name, or leads the election of it, and who waits: at most limit waiters, 0 for all. It needs
// a server that is coordd; another says that the method is not implemented. Package concurrency takes locks.
func (c *Client) ListLocks(ctx context.Context, name string, limit int64) (*coorddpb.ListLocksResponse, error) {
	req, resp := &coorddpb.ListLocksRequest{Name: []byte(name), Limit: limit}, new(coorddpb.ListLocksResponse)
	if err := c.invoke(ctx, call{method: services.Locks_List_FullMethodName, idempotent: true}, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

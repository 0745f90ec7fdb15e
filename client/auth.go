package client

import (
	"context"
	"errors"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// tokens holds the token that goes with every call.
type tokens struct {
	// login fetches a token; nil if the token was given by the user and stays.
	login func(ctx context.Context) (string, error)
	// turn holds one ticket; who has it may touch the fields below and fetch. A mutex would not do, since
	// waiting must end with the context.
	turn chan struct{}

	value string
	valid bool
}

// newTokens gives what the options ask for, nil for nothing.
func (c *Client) newTokens() *tokens {
	t := &tokens{turn: make(chan struct{}, 1)}
	switch {
	case c.opts.token != "":
		t.value, t.valid = c.opts.token, true
	case c.opts.user != "":
		t.login = c.login
	default:
		return nil
	}
	return t
}

// login asks for a token. A cluster without authentication needs none.
func (c *Client) login(ctx context.Context) (string, error) {
	resp := new(rpcpb.AuthenticateResponse)
	err := c.invoke(ctx, call{method: services.Auth_Authenticate_FullMethodName, idempotent: true, anonymous: true},
		&rpcpb.AuthenticateRequest{Name: c.opts.user, Password: c.opts.password}, resp)
	if errors.Is(err, errs.ErrAuthNotEnabled) {
		return "", nil
	}
	return resp.Token, err
}

// renewable tells whether another token can be had.
func (t *tokens) renewable() bool { return t.login != nil }

// get gives the token, fetching it if need be; several callers fetch once.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-t.turn }()
	if t.valid {
		return t.value, nil
	}
	value, err := t.login(ctx)
	if err != nil {
		return "", err
	}
	t.value, t.valid = value, true
	return value, nil
}

// expire forgets a token that a server refused, unless there is another one by now.
func (t *tokens) expire(used string) {
	select {
	case t.turn <- struct{}{}:
	default: // another one is being fetched right now
		return
	}
	defer func() { <-t.turn }()
	if t.login != nil && t.value == used {
		t.valid = false
	}
}

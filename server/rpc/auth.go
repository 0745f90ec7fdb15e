package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coordd/api/errs"
	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/api/services"
)

// authRevision is the revision of users and roles as long as none was ever changed.
const authRevision = 1

// AuthService is the Auth service of the API of a member where authentication is off and cannot be turned
// on: who asks learns that, and calls about users and roles say that they are not there yet.
// Its methods may be called by any goroutine, also without gRPC.
type AuthService struct {
	services.UnimplementedAuthServer
	id Identity
}

var _ services.AuthServer = (*AuthService)(nil)

// NewAuth returns the service.
func NewAuth(id Identity) *AuthService { return &AuthService{id: id} }

// AuthStatus tells that authentication is off.
func (s *AuthService) AuthStatus(context.Context, *rpcpb.AuthStatusRequest) (*rpcpb.AuthStatusResponse, error) {
	return &rpcpb.AuthStatusResponse{Header: complete(s.id, nil), AuthRevision: authRevision}, nil
}

// AuthDisable has nothing to do.
func (s *AuthService) AuthDisable(context.Context, *rpcpb.AuthDisableRequest) (*rpcpb.AuthDisableResponse, error) {
	return &rpcpb.AuthDisableResponse{Header: complete(s.id, nil)}, nil
}

// Authenticate gives no tokens: [errs.ErrAuthNotEnabled].
func (s *AuthService) Authenticate(context.Context, *rpcpb.AuthenticateRequest) (*rpcpb.AuthenticateResponse, error) {
	return nil, errs.ErrAuthNotEnabled
}

// authAnswered are the methods of AuthService that have an answer.
var authAnswered = map[string]bool{"AuthStatus": true, "AuthDisable": true, "Authenticate": true}

// authDesc is the description of service Auth in which all other methods say clearly that they are not there.
func authDesc() *grpc.ServiceDesc {
	d := services.Auth_ServiceDesc
	d.Methods = nil
	for _, md := range services.Auth_ServiceDesc.Methods {
		if !authAnswered[md.MethodName] {
			md.Handler = absent(md.Handler, "coordd: "+md.MethodName+": authentication is not there yet")
		}
		d.Methods = append(d.Methods, md)
	}
	return &d
}

// absent wraps the handler of a method that is not there: its answer to any request is text.
func absent(next grpc.MethodHandler, text string) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		reply, err := next(srv, ctx, dec, interceptor)
		if status.Code(err) == codes.Unimplemented {
			err = status.Error(codes.Unimplemented, text)
		}
		return reply, err
	}
}

package errs_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/api/errs"
)

// reference is what clients of the v3 API know: sentinel, its name, kind, code on the wire, text.
var reference = []struct {
	err  *errs.Error
	name string
	kind errs.Kind
	wire errs.Kind
	text string
}{
	{errs.ErrEmptyKey, "ErrEmptyKey", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: key is not provided"},
	{errs.ErrKeyNotFound, "ErrKeyNotFound", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: key not found"},
	{errs.ErrValueProvided, "ErrValueProvided", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: value is provided"},
	{errs.ErrLeaseProvided, "ErrLeaseProvided", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: lease is provided"},
	{errs.ErrTooManyOps, "ErrTooManyOps", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: too many operations in txn request"},
	{errs.ErrDuplicateKey, "ErrDuplicateKey", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: duplicate key given in txn request"},
	{errs.ErrInvalidClientAPIVersion, "ErrInvalidClientAPIVersion", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: invalid client api version"},
	{errs.ErrInvalidSortOption, "ErrInvalidSortOption", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: invalid sort option"},
	{errs.ErrCompacted, "ErrCompacted", errs.OutOfRange, errs.OutOfRange, "etcdserver: mvcc: required revision has been compacted"},
	{errs.ErrFutureRev, "ErrFutureRev", errs.OutOfRange, errs.OutOfRange, "etcdserver: mvcc: required revision is a future revision"},
	{errs.ErrNoSpace, "ErrNoSpace", errs.ResourceExhausted, errs.ResourceExhausted, "etcdserver: mvcc: database space exceeded"},
	{errs.ErrLeaseNotFound, "ErrLeaseNotFound", errs.NotFound, errs.NotFound, "etcdserver: requested lease not found"},
	{errs.ErrLeaseExist, "ErrLeaseExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: lease already exists"},
	{errs.ErrLeaseTTLTooLarge, "ErrLeaseTTLTooLarge", errs.OutOfRange, errs.OutOfRange, "etcdserver: too large lease TTL"},
	{errs.ErrWatchCanceled, "ErrWatchCanceled", errs.Canceled, errs.Canceled, "etcdserver: watch canceled"},
	{errs.ErrMemberExist, "ErrMemberExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: member ID already exist"},
	{errs.ErrPeerURLExist, "ErrPeerURLExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: Peer URLs already exists"},
	{errs.ErrMemberNotEnoughStarted, "ErrMemberNotEnoughStarted", errs.FailedPrecondition, errs.Unknown, "etcdserver: re-configuration failed due to not enough started members"},
	{errs.ErrMemberBadURLs, "ErrMemberBadURLs", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: given member URLs are invalid"},
	{errs.ErrMemberNotFound, "ErrMemberNotFound", errs.NotFound, errs.NotFound, "etcdserver: member not found"},
	{errs.ErrMemberNotLearner, "ErrMemberNotLearner", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: can only promote a learner member"},
	{errs.ErrMemberLearnerNotReady, "ErrMemberLearnerNotReady", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: can only promote a learner member which is in sync with leader"},
	{errs.ErrTooManyLearners, "ErrTooManyLearners", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: too many learner members in cluster"},
	{errs.ErrClusterIDMismatch, "ErrClusterIDMismatch", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: cluster ID mismatch"},
	{errs.ErrRequestTooLarge, "ErrRequestTooLarge", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: request is too large"},
	{errs.ErrTooManyRequests, "ErrTooManyRequests", errs.ResourceExhausted, errs.Unknown, "etcdserver: too many requests"},
	{errs.ErrRootUserNotExist, "ErrRootUserNotExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: root user does not exist"},
	{errs.ErrRootRoleNotExist, "ErrRootRoleNotExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: root user does not have root role"},
	{errs.ErrUserAlreadyExist, "ErrUserAlreadyExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: user name already exists"},
	{errs.ErrUserEmpty, "ErrUserEmpty", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: user name is empty"},
	{errs.ErrUserNotFound, "ErrUserNotFound", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: user name not found"},
	{errs.ErrRoleAlreadyExist, "ErrRoleAlreadyExist", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: role name already exists"},
	{errs.ErrRoleNotFound, "ErrRoleNotFound", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: role name not found"},
	{errs.ErrRoleEmpty, "ErrRoleEmpty", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: role name is empty"},
	{errs.ErrAuthFailed, "ErrAuthFailed", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"},
	{errs.ErrPermissionNotGiven, "ErrPermissionNotGiven", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: permission not given"},
	{errs.ErrPermissionDenied, "ErrPermissionDenied", errs.PermissionDenied, errs.PermissionDenied, "etcdserver: permission denied"},
	{errs.ErrRoleNotGranted, "ErrRoleNotGranted", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: role is not granted to the user"},
	{errs.ErrPermissionNotGranted, "ErrPermissionNotGranted", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: permission is not granted to the role"},
	{errs.ErrAuthNotEnabled, "ErrAuthNotEnabled", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: authentication is not enabled"},
	{errs.ErrInvalidAuthToken, "ErrInvalidAuthToken", errs.Unauthenticated, errs.Unauthenticated, "etcdserver: invalid auth token"},
	{errs.ErrInvalidAuthMgmt, "ErrInvalidAuthMgmt", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: invalid auth management"},
	{errs.ErrAuthOldRevision, "ErrAuthOldRevision", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: revision of auth store is old"},
	{errs.ErrNoLeader, "ErrNoLeader", errs.Unavailable, errs.Unavailable, "etcdserver: no leader"},
	{errs.ErrNotLeader, "ErrNotLeader", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: not leader"},
	{errs.ErrLeaderChanged, "ErrLeaderChanged", errs.Unavailable, errs.Unavailable, "etcdserver: leader changed"},
	{errs.ErrNotCapable, "ErrNotCapable", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: not capable"},
	{errs.ErrStopped, "ErrStopped", errs.Unavailable, errs.Unavailable, "etcdserver: server stopped"},
	{errs.ErrTimeout, "ErrTimeout", errs.Unavailable, errs.Unavailable, "etcdserver: request timed out"},
	{errs.ErrTimeoutDueToLeaderFail, "ErrTimeoutDueToLeaderFail", errs.Unavailable, errs.Unavailable, "etcdserver: request timed out, possibly due to previous leader failure"},
	{errs.ErrTimeoutDueToConnectionLost, "ErrTimeoutDueToConnectionLost", errs.Unavailable, errs.Unavailable, "etcdserver: request timed out, possibly due to connection lost"},
	{errs.ErrTimeoutWaitAppliedIndex, "ErrTimeoutWaitAppliedIndex", errs.Unavailable, errs.Unavailable, "etcdserver: request timed out, waiting for the applied index took too long"},
	{errs.ErrUnhealthy, "ErrUnhealthy", errs.Unavailable, errs.Unavailable, "etcdserver: unhealthy cluster"},
	{errs.ErrCorrupt, "ErrCorrupt", errs.DataLoss, errs.DataLoss, "etcdserver: corrupt cluster"},
	{errs.ErrNotSupportedForLearner, "ErrNotSupportedForLearner", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: rpc not supported for learner"},
	{errs.ErrBadLeaderTransferee, "ErrBadLeaderTransferee", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: bad leader transferee"},
	{errs.ErrWrongDowngradeVersionFormat, "ErrWrongDowngradeVersionFormat", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: wrong downgrade target version format"},
	{errs.ErrInvalidDowngradeTargetVersion, "ErrInvalidDowngradeTargetVersion", errs.InvalidArgument, errs.InvalidArgument, "etcdserver: invalid downgrade target version"},
	{errs.ErrClusterVersionUnavailable, "ErrClusterVersionUnavailable", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: cluster version not found during downgrade"},
	{errs.ErrDowngradeInProcess, "ErrDowngradeInProcess", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: cluster has a downgrade job in progress"},
	{errs.ErrNoInflightDowngrade, "ErrNoInflightDowngrade", errs.FailedPrecondition, errs.FailedPrecondition, "etcdserver: no inflight downgrade job"},
	{errs.ErrCanceled, "ErrCanceled", errs.Canceled, errs.Canceled, "etcdserver: request canceled"},
	{errs.ErrDeadlineExceeded, "ErrDeadlineExceeded", errs.DeadlineExceeded, errs.DeadlineExceeded, "etcdserver: context deadline exceeded"},
	{errs.ErrNotPrimaryLessor, "ErrNotPrimaryLessor", errs.Unknown, errs.Unknown, "not a primary lessor"},
	{errs.ErrNoPasswordUser, "ErrNoPasswordUser", errs.Unknown, errs.Unknown, "auth: authentication failed, password was given for no password user"},
	{errs.ErrVerifyOnlyKey, "ErrVerifyOnlyKey", errs.Unknown, errs.Unknown, "auth: token signing attempted with verify-only key"},
	{errs.ErrPasswordTooLong, "ErrPasswordTooLong", errs.Unknown, errs.Unknown, "bcrypt: password length exceeds 72 bytes"},
	{errs.ErrTimeoutLeaderTransfer, "ErrTimeoutLeaderTransfer", errs.Unknown, errs.Unknown, "etcdserver: request timed out, leader transfer took too long"},
	{errs.ErrUnknownMethod, "ErrUnknownMethod", errs.Unknown, errs.Unknown, "etcdserver: unknown method"},
	{errs.ErrSessionExpired, "ErrSessionExpired", errs.NotFound, errs.NotFound, "mutex: session is expired"},
	{errs.ErrElectionNotLeader, "ErrElectionNotLeader", errs.FailedPrecondition, errs.FailedPrecondition, "election: not leader"},
	{errs.ErrElectionNoLeader, "ErrElectionNoLeader", errs.NotFound, errs.NotFound, "election: no leader"},
	{errs.ErrElectionLeaderMissing, "ErrElectionLeaderMissing", errs.InvalidArgument, errs.InvalidArgument, `"leader" field must be provided`},
	{errs.ErrNotLock, "ErrNotLock", errs.FailedPrecondition, errs.FailedPrecondition, "lock: the key is not that of a lock or election"},
	{errs.ErrMixedLimits, "ErrMixedLimits", errs.FailedPrecondition, errs.FailedPrecondition, "lock: the name is in use with another limit; all askers must give the same"},
	{errs.ErrOtherMode, "ErrOtherMode", errs.FailedPrecondition, errs.FailedPrecondition, "lock: the lease has a place in the queue already, shared where exclusive is asked for, or the other way round, or with another limit; give that back first"},
	{errs.ErrLockRequest, "ErrLockRequest", errs.InvalidArgument, errs.InvalidArgument, "lock: the fields of the request contradict each other"},
	{errs.ErrTimeoutWaitLeaseApplied, "ErrTimeoutWaitLeaseApplied", errs.Unknown, errs.Unknown, "waiting for node to catch up its applied index has timed out"},
}

// TestReference pins kind, wire code and text of every condition, and that there are no others.
func TestReference(t *testing.T) {
	pinned := map[*errs.Error]bool{}
	for _, r := range reference {
		if r.err.Kind() != r.kind || r.err.WireCode() != r.wire || r.err.Error() != r.text {
			t.Errorf("%s is (%v, %v, %q), want (%v, %v, %q)", r.name, r.err.Kind(), r.err.WireCode(), r.err, r.kind, r.wire, r.text)
		}
		pinned[r.err] = true
	}
	for _, e := range errs.All() {
		if !pinned[e] {
			t.Errorf("%q is not in the table of this test", e)
		}
	}
	if len(errs.All()) != len(reference) {
		t.Errorf("All gives %d conditions, the table has %d", len(errs.All()), len(reference))
	}
}

// TestDeclared holds the source against All: every exported sentinel is in it, under the name the
// table gives it, and is documented.
func TestDeclared(t *testing.T) {
	names := map[string]bool{}
	for _, r := range reference {
		names[r.name] = true
	}
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Err") {
				return true
			}
			name := spec.Names[0].Name
			declared++
			if !names[name] {
				t.Errorf("%s: %s is not in the table of this test", path, name)
			}
			if !strings.HasPrefix(spec.Doc.Text(), name+": ") {
				t.Errorf("%s: %s has no comment", path, name)
			}
			return true
		})
	}
	if declared != len(errs.All()) {
		t.Errorf("%d sentinels are declared, All gives %d", declared, len(errs.All()))
	}
}

// TestFromText finds each condition by its text, and each text is used once.
func TestFromText(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range errs.All() {
		if seen[e.Error()] {
			t.Errorf("%q is used twice", e)
		}
		seen[e.Error()] = true
		if got, ok := errs.FromText(e.Error()); !ok || got != e {
			t.Errorf("FromText(%q) = %v, %v", e, got, ok)
		}
	}
	for _, text := range []string{"", "etcdserver: no space", "etcdserver: request cancelled"} {
		if got, ok := errs.FromText(text); ok {
			t.Errorf("FromText(%q) = %v, want none", text, got)
		}
	}
}

// TestAllIsACopy makes sure that a caller cannot change the list.
func TestAllIsACopy(t *testing.T) {
	first := errs.All()[0]
	errs.All()[0] = nil
	if errs.All()[0] != first {
		t.Error("a change of the result of All is seen by the next caller")
	}
}

func TestCode(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code uint32
		text string
		kind errs.Kind
	}{
		{"none", nil, 0, "", errs.OK},
		{"bare", errs.ErrCompacted, 11, "etcdserver: mvcc: required revision has been compacted", errs.OutOfRange},
		{"wrapped", fmt.Errorf("range at 5: %w", errs.ErrCompacted), 11, "etcdserver: mvcc: required revision has been compacted", errs.OutOfRange},
		{"joined", errors.Join(errors.New("x"), errs.ErrNoLeader), 14, "etcdserver: no leader", errs.Unavailable},
		{"condition before context", fmt.Errorf("%w: %w", errs.ErrTimeout, context.DeadlineExceeded), 14, "etcdserver: request timed out", errs.Unavailable},
		{"disguised", fmt.Errorf("%w", errs.ErrTooManyRequests), 2, "etcdserver: too many requests", errs.ResourceExhausted},
		{"canceled", fmt.Errorf("wait: %w", context.Canceled), 1, "wait: context canceled", errs.Canceled},
		{"deadline", context.DeadlineExceeded, 4, "context deadline exceeded", errs.DeadlineExceeded},
		{"foreign", errors.New("disk on fire"), 2, "disk on fire", errs.Unknown},
	}
	for _, tt := range tests {
		code, text := errs.Code(tt.err)
		if code != tt.code || text != tt.text {
			t.Errorf("%s: Code = %d, %q, want %d, %q", tt.name, code, text, tt.code, tt.text)
		}
		if kind := errs.KindOf(tt.err); kind != tt.kind {
			t.Errorf("%s: KindOf = %v, want %v", tt.name, kind, tt.kind)
		}
	}
	if err := fmt.Errorf("a: %w", errs.ErrLeaseNotFound); !errors.Is(err, errs.ErrLeaseNotFound) || errors.Is(err, errs.ErrLeaseExist) {
		t.Error("errors.Is does not tell wrapped conditions apart")
	}
}

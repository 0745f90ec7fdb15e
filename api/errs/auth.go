package errs

// Conditions of users, roles and tokens.
var (
	// ErrRootUserNotExist: authentication is enabled without a user root.
	ErrRootUserNotExist = condition(FailedPrecondition, "etcdserver: root user does not exist")
	// ErrRootRoleNotExist: authentication is enabled and user root lacks role root.
	ErrRootRoleNotExist = condition(FailedPrecondition, "etcdserver: root user does not have root role")
	// ErrUserAlreadyExist: a user is added who exists.
	ErrUserAlreadyExist = condition(FailedPrecondition, "etcdserver: user name already exists")
	// ErrUserEmpty: a user without name is added.
	ErrUserEmpty = condition(InvalidArgument, "etcdserver: user name is empty")
	// ErrUserNotFound: there is no such user.
	ErrUserNotFound = condition(FailedPrecondition, "etcdserver: user name not found")
	// ErrRoleAlreadyExist: a role is added that exists.
	ErrRoleAlreadyExist = condition(FailedPrecondition, "etcdserver: role name already exists")
	// ErrRoleNotFound: there is no such role.
	ErrRoleNotFound = condition(FailedPrecondition, "etcdserver: role name not found")
	// ErrRoleEmpty: a role without name is added.
	ErrRoleEmpty = condition(InvalidArgument, "etcdserver: role name is empty")
	// ErrAuthFailed: the name or the password is wrong.
	ErrAuthFailed = condition(InvalidArgument, "etcdserver: authentication failed, invalid user ID or password")
	// ErrPermissionNotGiven: a permission is granted without saying which.
	ErrPermissionNotGiven = condition(InvalidArgument, "etcdserver: permission not given")
	// ErrPermissionDenied: the caller may not do it.
	ErrPermissionDenied = condition(PermissionDenied, "etcdserver: permission denied")
	// ErrRoleNotGranted: a role is revoked that the user does not have.
	ErrRoleNotGranted = condition(FailedPrecondition, "etcdserver: role is not granted to the user")
	// ErrPermissionNotGranted: a permission is revoked that the role does not have.
	ErrPermissionNotGranted = condition(FailedPrecondition, "etcdserver: permission is not granted to the role")
	// ErrAuthNotEnabled: a token is asked for and authentication is off.
	ErrAuthNotEnabled = condition(FailedPrecondition, "etcdserver: authentication is not enabled")
	// ErrInvalidAuthToken: the token is not known or has expired.
	ErrInvalidAuthToken = condition(Unauthenticated, "etcdserver: invalid auth token")
	// ErrInvalidAuthMgmt: a change of users or roles would break the rules, such as deleting root.
	ErrInvalidAuthMgmt = condition(InvalidArgument, "etcdserver: invalid auth management")
	// ErrAuthOldRevision: users or roles changed since the request was checked.
	ErrAuthOldRevision = condition(InvalidArgument, "etcdserver: revision of auth store is old")
)

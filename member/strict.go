package member

import "github.com/coordd/coordd/api/errs"

// Quorum is the number of voters out of n that must agree: a majority.
func Quorum(n int) int { return n/2 + 1 }

// Voters counts the voting members of a list.
func Voters(members []*Member) int {
	n := 0
	for _, m := range members {
		if m.Voter() {
			n++
		}
	}
	return n
}

// CheckStartedAdd says whether one more voter may be added to members: the voters that have
// ever started must be a quorum of the enlarged cluster, because the new one cannot help before
// it runs. A cluster of one started member is the exception, else it could never grow. It
// returns nil or [errs.ErrMemberNotEnoughStarted]. Adding a learner needs no check.
func CheckStartedAdd(members []*Member) error {
	voters, started := countStarted(members, 0)
	if voters == 1 && started == 1 {
		return nil
	}
	return enough(started, Quorum(voters+1))
}

// CheckStartedPromote says whether a learner may become a voter: the started voters together
// with it must be a quorum of the enlarged cluster. It returns nil or
// [errs.ErrMemberNotEnoughStarted].
func CheckStartedPromote(members []*Member) error {
	voters, started := countStarted(members, 0)
	return enough(started+1, Quorum(voters+1))
}

// CheckStartedRemove says whether member id may be removed: the started voters that remain must
// be a quorum of those that remain. Learners, and ids that are no members, may always be tried.
// It returns nil or [errs.ErrMemberNotEnoughStarted].
func CheckStartedRemove(members []*Member, id ID) error {
	target := find(members, id)
	if target == nil || target.IsLearner {
		return nil
	}
	voters, started := countStarted(members, id)
	return enough(started, Quorum(voters))
}

// CheckConnectedAdd says whether a cluster of that many voters, of which connected (the asking
// one included) have been reachable for a while, stands one more voter that is not up yet: the
// connected ones must still be a quorum. A cluster of one is exempt. It returns nil or
// [errs.ErrUnhealthy].
func CheckConnectedAdd(voters, connected int) error {
	if voters <= 1 || connected >= Quorum(voters+1) {
		return nil
	}
	return errs.ErrUnhealthy
}

// CheckConnectedRemove says whether one voter may leave a cluster of that many voters, of which
// connected (the asking one included) have been reachable for a while. A voter that is not
// connected may always go; a connected one only if the rest of the connected are a quorum of the
// voters that remain. It returns nil or [errs.ErrUnhealthy].
func CheckConnectedRemove(voters, connected int, targetConnected bool) error {
	if !targetConnected || connected-1 >= Quorum(voters-1) {
		return nil
	}
	return errs.ErrUnhealthy
}

// countStarted counts the voters, and the started ones among them, leaving out the member skip.
func countStarted(members []*Member, skip ID) (voters, started int) {
	for _, m := range members {
		if m.IsLearner || m.ID == skip {
			continue
		}
		voters++
		if m.Started() {
			started++
		}
	}
	return voters, started
}

func enough(have, need int) error {
	if have >= need {
		return nil
	}
	return errs.ErrMemberNotEnoughStarted
}

func find(members []*Member, id ID) *Member {
	for _, m := range members {
		if m.ID == id {
			return m
		}
	}
	return nil
}

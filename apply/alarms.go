package apply

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/coordd/coordd/api/rpcpb"
	"github.com/coordd/coordd/mvcc/backend"
)

// Alarm is one active alarm: what is wrong, and at which member.
type Alarm struct {
	Member uint64
	Type   rpcpb.AlarmType
}

// message converts the alarm for a response.
func (a Alarm) message() *rpcpb.AlarmMember {
	return &rpcpb.AlarmMember{MemberID: a.Member, Alarm: a.Type}
}

// Alarms is the replicated table of active alarms. It lives in bucket alarm: the key is the
// encoded rpcpb.AlarmMember, the value empty. Reading methods may be called by any goroutine and
// take no lock; changes are made by the apply loop.
type Alarms struct {
	b *backend.Backend
	// active is immutable once stored, in ascending order of member and type.
	active atomic.Pointer[[]Alarm]
}

// openAlarms reads the table from b.
func openAlarms(b *backend.Backend) (*Alarms, error) {
	var active []Alarm
	err := b.ForEach(backend.BucketAlarm, func(key, _ []byte) error {
		var m rpcpb.AlarmMember
		if err := m.UnmarshalVT(key); err != nil {
			return fmt.Errorf("bucket alarm: key %x: %w", key, err)
		}
		active = append(active, Alarm{Member: m.MemberID, Type: m.Alarm})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(active, compareAlarms)
	a := &Alarms{b: b}
	a.active.Store(&active)
	return a, nil
}

func compareAlarms(x, y Alarm) int {
	return cmp.Or(cmp.Compare(x.Member, y.Member), cmp.Compare(x.Type, y.Type))
}

// List returns the active alarms, in ascending order of member and type. The list is shared: read only.
func (a *Alarms) List() []Alarm { return *a.active.Load() }

// Active reports whether any member has an alarm of this type.
func (a *Alarms) Active(t rpcpb.AlarmType) bool {
	return slices.ContainsFunc(a.List(), func(x Alarm) bool { return x.Type == t })
}

// Raised reports whether this very alarm is active.
func (a *Alarms) Raised(x Alarm) bool {
	_, found := slices.BinarySearchFunc(a.List(), x, compareAlarms)
	return found
}

// raise makes an alarm active; it may be so already.
func (a *Alarms) raise(x Alarm) {
	i, found := slices.BinarySearchFunc(a.List(), x, compareAlarms)
	if found {
		return
	}
	next := slices.Insert(slices.Clone(a.List()), i, x)
	a.b.Put(backend.BucketAlarm, alarmKey(x), nil)
	a.active.Store(&next)
}

// clear ends an alarm, and reports whether it was active.
func (a *Alarms) clear(x Alarm) bool {
	i, found := slices.BinarySearchFunc(a.List(), x, compareAlarms)
	if !found {
		return false
	}
	next := slices.Delete(slices.Clone(a.List()), i, i+1)
	a.b.Delete(backend.BucketAlarm, alarmKey(x))
	a.active.Store(&next)
	return true
}

func alarmKey(x Alarm) []byte {
	key, err := x.message().MarshalVT()
	if err != nil {
		panic(fmt.Sprintf("apply: encoding alarm %+v: %v", x, err)) // two integers cannot fail
	}
	return key
}

// alarm carries out an alarm request. Raising type NONE, clearing what is not active, and unknown
// actions do nothing and are no errors.
func (x *executor) alarm(r *rpcpb.AlarmRequest) Result {
	resp := &rpcpb.AlarmResponse{Header: x.header()}
	subject := Alarm{Member: r.GetMemberID(), Type: r.GetAlarm()}
	switch r.GetAction() {
	case rpcpb.AlarmRequest_GET:
		for _, a := range x.alarms.List() {
			if r.GetAlarm() == rpcpb.AlarmType_NONE || r.GetAlarm() == a.Type {
				resp.Alarms = append(resp.Alarms, a.message())
			}
		}
	case rpcpb.AlarmRequest_ACTIVATE:
		if r.GetAlarm() != rpcpb.AlarmType_NONE {
			x.alarms.raise(subject)
			resp.Alarms = append(resp.Alarms, subject.message())
		}
	case rpcpb.AlarmRequest_DEACTIVATE:
		if x.alarms.clear(subject) {
			resp.Alarms = append(resp.Alarms, subject.message())
		}
	}
	return Result{Response: resp}
}

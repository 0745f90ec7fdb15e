package linearizability

import (
	"context"
	"fmt"
	"strconv"

	"github.com/coordd/coordd/tests/history"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch collects all events from the first revision on, until last says a revision up to which it shall go, and that has
// come. It fails if the events of one revision do not come together.
func watch(ctx context.Context, c clientv3.Watcher, last <-chan int64) ([]history.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var events []history.Event
	var end, seen int64
	responses := c.Watch(ctx, history.Root, clientv3.WithPrefix(), clientv3.WithRev(1))
	for end == 0 || seen < end {
		select {
		case end = <-last:
		case r, ok := <-responses:
			if !ok || r.Err() != nil {
				return events, fmt.Errorf("the watch ended at revision %d: %v, %v", seen, r.Err(), ctx.Err())
			}
			for i, e := range r.Events {
				if i == 0 && e.Kv.ModRevision == seen {
					return events, fmt.Errorf("the events of revision %d came in parts", seen)
				}
				event, err := parse(e)
				if err != nil {
					return events, err
				}
				events, seen = append(events, event), e.Kv.ModRevision
			}
		}
	}
	return events, nil
}

func parse(e *clientv3.Event) (history.Event, error) {
	group, key, err := history.ParseName(string(e.Kv.Key))
	if err != nil {
		return history.Event{}, err
	}
	event := history.Event{Revision: e.Kv.ModRevision, Group: group, Key: key}
	if e.Type == clientv3.EventTypePut {
		event.Value, err = strconv.ParseInt(string(e.Kv.Value), 10, 64)
	}
	return event, err
}

package watch

// startTicks starts the stream's ticker for progress notices.
func (s *Stream) startTicks() {
	every := s.hub.o.ProgressInterval
	s.ticks, s.stopTick = s.hub.o.Tick(every + s.hub.o.Jitter(every/10))
}

// notify queues a progress notice for each watcher that asked for them, has been given everything and had no events since
// the last tick. Events that wait in the queue come before it.
func (s *Stream) notify() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range s.watchers {
		if !w.progress {
			continue
		}
		if w.state == live && !w.recent && w.next <= h.rev+1 {
			s.answer(Response{WatchID: w.id, Revision: h.rev}, false)
		}
		w.recent = false
	}
}

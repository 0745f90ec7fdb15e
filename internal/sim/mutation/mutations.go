package mutation

import (
	"slices"
	"strings"
)

// Mutation is one deliberate bug.
type Mutation struct {
	Name string
	File string // from the root of the module, with slashes
	Old  string // stands in the file exactly once
	New  string
}

// Mutations is the list of deliberate bugs. Each leaves the product compiling, and working when nothing goes wrong.
func Mutations() []Mutation {
	return slices.Concat(storageMutations(), serviceMutations(), leaseMutations(), lockMutations())
}

// storageMutations break what stands between an acknowledgement and the disk.
func storageMutations() []Mutation {
	return []Mutation{
		{"skip-the-fsync", "wal/write.go",
			"		n, err = l.file.WriteSync(l.disk, at)\n",
			"		n, err = l.file.WriteAt(l.disk, at)\n"},
		{"answer-before-the-log-is-stored", "raftnode/ready.go",
			"		advanced := n.advances(rd)\n		if err := n.store(store, rd.MustSync); err != nil {",
			"		advanced := n.advances(rd)\n		for _, m := range store.GetResponses() {\n			if m.GetTo() != n.cfg.ID {\n				n.send([]*raftpb.Message{m})\n			}\n		}\n		if err := n.store(store, rd.MustSync); err != nil {"},
		{"forget-the-vote", "raftnode/loop.go",
			"Vote: &l.vote, Commit: &l.commit}",
			"Commit: &l.commit}"},
		{"take-part-without-asking", "server/founding.go",
			"	if !n.fresh {",
			"	if n.cfg.NewCluster {"},
		{"apply-twice-after-restart", "mvcc/backend/committer.go",
			"binary.BigEndian.AppendUint64(nil, pos.Index)",
			"binary.BigEndian.AppendUint64(nil, max(pos.Index, 3)-1)"},
		{"drop-log-that-the-file-lacks", "server/applyloop.go",
			"	durable := m.Backend.Position().Index\n",
			"	durable := m.Position().Index\n"},
		{"snapshot-newer-than-its-file", "server/peers.go",
			"	s, err := positionSnapshot(file.Position())\n",
			"	s, err := positionSnapshot(n.machine.Load().Position())\n"},
		{"directories-not-durable", "server/bootstrap.go",
			"		if err := fs.SyncDir(filepath.Dir(d)); err != nil {",
			"		if err := fs.SyncDir(d); err != nil {"},
		{"new-segment-not-durable", "wal/segment.go",
			"		err = fs.SyncDir(dir)\n",
			"		err = nil\n"},
		{"compaction-takes-the-newest", "mvcc/index/entry.go",
			"	if newest >= 0 && newest < first && !all[newest].dead {\n		first = newest\n	}\n	if first == 0 {\n		return e\n	}\n	for _, c",
			"	_ = newest\n	if first == 0 {\n		return e\n	}\n	for _, c"},
	}
}

// serviceMutations break what clients are promised.
func serviceMutations() []Mutation {
	return []Mutation{
		{"read-without-read-index", "server/read.go",
			"	round := n.reads.join()\n	select {",
			"	round := &readRound{done: make(chan struct{})}\n	close(round.done)\n	select {"},
		{"read-before-the-index-is-applied", "server/read.go",
			"	if n.appliedIndex.Load() >= index {",
			"	if index > 0 {"},
		{"answer-before-it-can-be-read", "server/applyloop.go",
			"	rev, events := m.Publish()\n	last := entries[len(entries)-1]\n",
			"	for _, a := range answers {\n		n.waits.Trigger(a.id, a.result)\n	}\n	answers = answers[:0]\n	time.Sleep(time.Millisecond)\n	rev, events := m.Publish()\n	last := entries[len(entries)-1]\n"},
		{"lose-events-of-a-snapshot", "watch/hub.go",
			"			if w.state == live && max(w.next, before+1) <= h.rev {",
			"			if w.state == live && max(w.next, before+1) > h.rev {"},
		{"miss-the-first-event-of-catching-up", "watch/catchup.go",
			"	p.err = p.store.History(p.from, p.to,",
			"	p.err = p.store.History(p.from+1, p.to,"},
		{"drop-events-at-compaction", "watch/stream.go",
			"		h.kill(w, compacted)\n		return id, nil\n",
			"		w.next = compacted\n"},
		{"split-a-revision", "watch/catchup.go",
			"	if p.bytes < limit || rev == last {",
			"	if p.bytes < min(limit, 300) {"},
		{"progress-ahead", "watch/stream.go",
			"	if len(s.watchers) == 0 || s.nLagging > 0 || s.nDead",
			"	if len(s.watchers) == 0 || s.nDead"},
		{"version-begins-anew", "mvcc/index/entry.go",
			"n.create, n.version = e.create, e.version+1",
			"n.create, n.version = e.create, e.version"},
	}
}

// leaseMutations break the promises of leases.
func leaseMutations() []Mutation {
	return []Mutation{
		{"revoke-with-an-old-term", "apply/leases.go",
			"term != 0 && term < c.Term {",
			"term != 0 && term > c.Term {"},
		{"new-leader-shortens-leases", "server/expire.go",
			"	n.expirer.Promote(term, n.machine.Load().Leases, n.confirmFor())\n",
			"	n.expirer.Promote(term, n.machine.Load().Leases, -n.cfg.electionTimeout())\n"},
		{"trust-leadership-for-ever", "server/leases.go",
			"c.term == st.Term && begin-c.begin <= n.confirmFor() {",
			"c.term == st.Term {"},
		{"answer-for-a-lease-not-yet-applied", "server/leases.go",
			"	return n.waitCommitted(ctx)\n",
			"	return nil\n"},
		{"go-on-with-old-deadlines", "lease/expirer.go",
			oldDeadlines,
			strings.NewReplacer("	e.clear()\n", "", "		e.add(l, extend)\n", "		if e.items[l.ID] == nil {\n			e.add(l, extend)\n		}\n").Replace(oldDeadlines)},
		{"never-revoke-again", "server/expire.go",
			"			n.expirer.GiveBack(id)\n",
			""},
	}
}

// lockMutations break the promises of locks.
func lockMutations() []Mutation {
	return []Mutation{
		{"unlock-without-token", "server/lock/place.go",
			"	if create != 0 {\n		when = append(when, ifCreate(key, create))\n	}\n	if lease != 0 && lease != id {",
			"	if lease != 0 && lease != id {"},
		{"hold-without-waiting", "server/lock/place.go",
			"	alone = len(resp.GetResponses()[1].GetResponseRange().GetKvs()) == 1\n",
			"	alone = len(resp.GetResponses()[1].GetResponseRange().GetKvs()) >= 1\n"},
	}
}

// oldDeadlines is where the expirer forgets what it knew as the leader of an earlier term.
const oldDeadlines = `	e.clear()
	e.primary, e.term = true, term
	// The list is read under the lock: a grant that is not in it is yet to be observed.
	for _, l := range t.List() {
		e.add(l, extend)
	}
}

// Demote makes the Expirer forget everything, because this member does not lead any more.
func (e *Expirer) Demote() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clear()
`

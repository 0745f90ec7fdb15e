// Package peer moves raft messages, snapshots and members' requests between
// the members of a cluster, over gRPC on the peer port.
//
// # Nouns
//
//   - Transport: this member's end. It knows the other members (Update, Remove),
//     serves their connections (Serve) and keeps connections to them.
//   - remote: another member as seen from here: a queue of messages, the
//     goroutine that sends them, and a second connection for everything else.
//   - Frame: what one turn of the sender found in the queue, as one gRPC message
//     in the format of pkg/raftcodec.
//
// # Messages
//
// Each member opens one stream to each other member and sends frames on it; what
// the other has to say comes on the stream that it opens. Send puts messages into the
// queue and never waits; the sender takes all that is there, so a frame holds whatever came
// while the last one was written, up to frameBytes. Heartbeats, votes and answers go ahead of
// append messages and proposals, so a backlog of log entries does not make a
// leader look dead. Those two kinds keep their order each.
//
// raft tolerates loss. Messages are dropped when the queue is full and while the member cannot be
// reached, with ReportUnreachable, so that the leader goes back to probing. The
// entries of an append message are encoded once for all followers that are sent the
// same ones.
//
// # Snapshots
//
// A MsgSnap is not queued. A goroutine of its own opens the file of the state
// machine (Config.Source), writes the file's position, which may be newer than raft
// asked for, into the message (see package raftnode why that is legal), and sends
// header, file and checksum on the second connection, so that bulk never delays
// a heartbeat. After the data, whose length the header tells, comes one more chunk: the CRC-32C of the
// data, 4 bytes little-endian. The receiver stores the file durably (Config.Store), steps the message into raft
// and only then acknowledges. The sender reports the outcome to raft once.
//
// # Identity
//
// Every call but Info carries the cluster's id, the caller's and the callee's in
// its metadata, and the answer to a stream carries the cluster's and callee's. A
// mismatch (an address that was given to another member, a member of
// another cluster) ends the call with FailedPrecondition and a text that names both, and is logged once by
// both sides until something changes.
//
// # Connections
//
// A sender connects at once when its member becomes known, and again whenever the stream
// breaks, at most redialRate times a second; so a restarted member is reached within a
// fraction of an election timeout. Several URLs are tried in turn. A dead link is noticed by unacknowledged data (keepaliveTimeout).
// URLs with scheme https use Config.ClientTLS.
//
// # Goroutines and locks
//
// Per remote: the sender and, while a file is being sent, one for the snapshot; with
// Hooks.RoundTrip one that probes. gRPC's own serve the other side. Close ends all and waits for them.
// Transport.mu guards the table of remotes, which readers take without it from an atomic pointer;
// queue.mu the queue; remote.mu the second connection and what the status calls tell. None is held while calling out.
package peer

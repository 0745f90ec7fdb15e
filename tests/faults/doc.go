// Package faults disturbs a cluster of processes: it kills and holds members, cuts and slows the links between them and to clients,
// and makes disks slow, failing and full.
//
// # Network
//
// A [Network] stands in every link. Members advertise an address of the Network, which relays to the member; clients dial
// through it. Who dialed a relay is found by the kernel's table of sockets, so each link has its own rules, one for each
// direction: bytes are held back while it is cut, and come when it is whole again, as after a lost and repeated
// packet; or they come late, and in small pieces. Nothing is lost or doubled inside of a connection, since TCP would mend that; a
// connection can be broken.
//
// # Disks
//
// A [Disk] sees each fsync and fdatasync of a process before the kernel does, by a seccomp filter with user notification
// (seccomp_unotify(2)). It can delay them, or have one fail with EIO, and needs neither root nor
// a module of the kernel: the program is started through the test binary, which installs the filter and becomes the program; so
// TestMain calls [Become] first. A full disk is a small file system in memory whose size is set to what is used, for which
// root is needed.
//
// # Plan
//
// A [Plan] is drawn from a seed: what happens when and for how long. Processes and links have a lane each, so a member can be
// killed while a link is cut; each minute ends with some calm, in which leases must end in time. [Run] carries it out.
// Whom "the leader" means is found out at the time.
//
// # Goroutines
//
// A relay has one for each direction, a listener one, a Disk one for each process, Run one for each lane. [Network.Close] and
// [Disk.Wait] wait for theirs; the network's mutex guards rules and connections and is a leaf.
package faults

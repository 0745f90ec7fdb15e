package member

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ID names a member or a cluster. Zero names nobody. In JSON it is a decimal number.
type ID uint64

// String returns the id in lower-case hex without padding, the form used in logs, in the
// members bucket and by command line tools.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 16) }

// ParseID reads the form written by [ID.String].
func ParseID(s string) (ID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("member: %q is not a member id: want 1 to 16 hex digits", s)
	}
	return ID(v), nil
}

// BootstrapID computes the id of a member that is listed when its cluster is created, from its
// peer URLs (in any order) and the cluster token. Every member computes the same ids from the
// same flags.
//
// The id is the first 8 bytes, big endian, of SHA-1 over the sorted URLs joined without
// separator, followed by the token.
func BootstrapID(peerURLs []string, token string) ID {
	return hashID(sortedJoin(peerURLs) + token)
}

// AddedID computes the id of a member that is added to a running cluster: as [BootstrapID], with
// the decimal unix time of the request in place of the token. The time makes the id differ from
// that of an earlier member at the same address; the proposer passes it, since replicas must not
// read clocks.
func AddedID(peerURLs []string, unixSeconds int64) ID {
	return hashID(sortedJoin(peerURLs) + strconv.FormatInt(unixSeconds, 10))
}

// ClusterID computes the id of a cluster from the ids of its first members (in any order): the
// first 8 bytes of SHA-1 over the ids in ascending order, 8 bytes big endian each.
func ClusterID(ids []ID) ID {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	buf := make([]byte, 0, 8*len(sorted))
	for _, id := range sorted {
		buf = binary.BigEndian.AppendUint64(buf, uint64(id))
	}
	return hashID(string(buf))
}

func sortedJoin(urls []string) string {
	sorted := slices.Clone(urls)
	slices.Sort(sorted)
	return strings.Join(sorted, "")
}

func hashID(s string) ID {
	sum := sha1.Sum([]byte(s))
	return ID(binary.BigEndian.Uint64(sum[:8]))
}

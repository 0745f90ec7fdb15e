package backend

// Bucket names a table of the file. Its zero value is the bucket of rows, which [Backend.Put] and [Backend.Delete]
// refuse.
type Bucket uint8

// The buckets, with what they hold; see the package comment for their keys and values.
const (
	BucketKey Bucket = iota
	BucketMeta
	BucketLease
	BucketAlarm
	BucketMembers
	BucketMembersRemoved
	BucketCluster
	BucketAuth
	BucketAuthUsers
	BucketAuthRoles
	bucketCount
)

// bucketNames are the names in the file.
var bucketNames = [bucketCount]string{
	BucketKey:            "key",
	BucketMeta:           "meta",
	BucketLease:          "lease",
	BucketAlarm:          "alarm",
	BucketMembers:        "members",
	BucketMembersRemoved: "members_removed",
	BucketCluster:        "cluster",
	BucketAuth:           "auth",
	BucketAuthUsers:      "authUsers",
	BucketAuthRoles:      "authRoles",
}

// String gives the name in the file.
func (b Bucket) String() string {
	if b >= bucketCount {
		return "unknown bucket"
	}
	return bucketNames[b]
}

// Keys of [BucketMeta]. The first three are written by [Backend.Commit] only.
const (
	MetaConsistentIndex     = "consistent_index"
	MetaTerm                = "term"
	MetaConfState           = "confState"
	MetaStorageVersion      = "storageVersion"
	MetaScheduledCompactRev = "scheduledCompactRev"
	MetaFinishedCompactRev  = "finishedCompactRev"
)

// StorageVersion is the version of the layout that Open writes into a new file.
const StorageVersion = "3.7.0"

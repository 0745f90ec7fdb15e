package mvcc

import (
	"fmt"
	"hash/crc32"

	"github.com/coordd/coordd/mvcc/backend"
)

// HashKV is a checksum over all rows up to main revision rev, 0 being the current one: CRC-32 (Castagnoli) over
// the name of the bucket and each row's key and value as they are in the file. Rows that compaction removes are
// left out, whether it has come to them or not. So stores agree in it that have the same history, compacted
// revision and rev. The compacted revision and rev are returned too. errs.ErrFutureRev, errs.ErrCompacted as for
// reads. It takes time in proportion to the number of rows, and holds up nobody. Any goroutine.
func (s *Store) HashKV(rev int64) (hash uint32, compactRev, hashRev int64, err error) {
	st, v, err := s.pin()
	if err != nil {
		return 0, 0, 0, err
	}
	defer v.Release()
	r := reader{rev: st.rev, compacted: st.compacted}
	if err := r.aim(rev); err != nil {
		return 0, 0, 0, err
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	hash = crc32.Update(0, table, []byte(backend.BucketKey.String()))
	var bad error
	err = v.Scan(Revision{}, backend.EndOf(r.at), func(id backend.RowID, row []byte) bool {
		if id.Main < st.compacted {
			h, err := readHead(row)
			if err != nil {
				bad = badRow(id, err)
				return false
			}
			if e := st.index.Get(h.key); e == nil || !e.Retained(id, st.compacted) {
				return true
			}
		}
		key := backend.EncodeRowKey(id)
		hash = crc32.Update(hash, table, key.Bytes())
		hash = crc32.Update(hash, table, row)
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return 0, 0, 0, fmt.Errorf("data file %s: hash: %w", s.b.Path(), err)
	}
	return hash, st.compacted, r.at, nil
}

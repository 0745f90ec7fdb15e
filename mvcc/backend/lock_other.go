//go:build !unix || solaris || aix

package backend

import (
	"errors"
	"os"
)

// tryLock leaves the locking to bbolt, whose lock on these systems cannot be taken twice.
func tryLock(*os.File) (ok bool, err error) { return true, nil }

// mapFile is not there on these systems: the structure of the file is not checked before bbolt uses it.
func mapFile(*os.File, int64) (data []byte, unmap func(), err error) {
	return nil, nil, errors.ErrUnsupported
}

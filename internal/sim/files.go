package sim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// copyFiles copies a directory that may be changed meanwhile, by renames and by appending only: it begins
// again when the names have changed.
func copyFiles(from, to string) error {
	for {
		before, err := listing(from)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := os.MkdirAll(to, 0o700); err != nil {
			return err
		}
		for _, f := range before {
			err := copyFile(filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		after, err := listing(from)
		if err != nil {
			return err
		}
		if slices.EqualFunc(before, after, os.SameFile) {
			return nil
		}
	}
}

func listing(dir string) (infos []fs.FileInfo, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// copyFile copies a file without its holes: a data file is mostly room for later.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	size, err := src.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for at := int64(0); at < size; {
		begin, end := stretch(src, at, size)
		if begin == end {
			break
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, begin), io.NewSectionReader(src, begin, end-begin)); err != nil {
			return err
		}
		at = end
	}
	return dst.Truncate(size)
}

// stretch is the first part of a file from at on that is no hole; all of it where that cannot be found out.
func stretch(f *os.File, at, size int64) (begin, end int64) {
	const seekData, seekHole = 3, 4 // of Linux
	if runtime.GOOS != "linux" {
		return at, size
	}
	begin, err := f.Seek(at, seekData)
	if err != nil {
		return at, at // there is none; a file system that cannot tell takes all for data
	}
	end, err = f.Seek(begin, seekHole)
	if err != nil {
		return begin, size
	}
	return begin, end
}

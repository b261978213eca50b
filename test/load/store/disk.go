package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/pushmesh/pushmesh/test/load/table"
)

// disk is what a commit can't do without: 8 KiB appended and fdatasynced, as the write-ahead log
// is.
func (b *bench) disk(context.Context) error {
	took, err := fsyncs(string(b.Dir), 500)
	if err != nil {
		return err
	}
	b.Add(
		table.Figure("disk: write of 8 KiB and fdatasync, p50", table.Quantile(took, .5), "ms", ""),
		table.Figure("disk: write of 8 KiB and fdatasync, p99", table.Quantile(took, .99), "ms", ""),
	)
	return nil
}

func fsyncs(dir string, n int) (took []time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, 8192)
	if _, err := f.WriteAt(make([]byte, n*len(page)), 0); err != nil {
		// as segments of the log are: there already
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	for i := range n {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i*len(page))); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

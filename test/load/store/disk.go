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
	"github.com/pushmesh/pushmesh/test/load/try"
)

// disk is what a commit can't do without: 8 KiB appended and fdatasynced, as the write-ahead log
// is.
func (b *bench) disk(context.Context) (err error) {
	defer try.Catch(&err)
	took := try.Get(fsyncs(string(b.Dir), 500))
	b.Add(
		table.Figure("disk: write of 8 KiB and fdatasync, p50", table.Quantile(took, .5), "ms", ""),
		table.Figure("disk: write of 8 KiB and fdatasync, p99", table.Quantile(took, .99), "ms", ""),
	)
	return nil
}

func fsyncs(dir string, n int) (took []time.Duration, err error) {
	defer try.Catch(&err)
	f := try.Get(os.Create(filepath.Join(dir, "fsync")))
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, 8192)
	// as segments of the log are: there already
	try.Get(f.WriteAt(make([]byte, n*len(page)), 0))
	try.Do(f.Sync())
	for i := range n {
		began := time.Now()
		try.Get(f.WriteAt(page, int64(i*len(page))))
		try.Do(syscall.Fdatasync(int(f.Fd())))
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

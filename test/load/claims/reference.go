package claims

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// locks is what lockload answers.
type locks struct {
	Done    int     `json:"done"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// reference does the same with etcd's concurrency.Mutex: one server, whose commits are on the same
// disk, and a session for each owner.
func (b *bench) reference(ctx context.Context) (err error) {
	defer try.Catch(&err)
	program := filepath.Join(b.Tools, "etcd")
	if _, err := os.Stat(program); err != nil {
		return errors.New("etcd can't be built here")
	}
	data := filepath.Join(string(b.Dir), "etcd-data")
	etcd := try.Get(b.Dir.StartEtcd(ctx, program, data))
	defer func() { local.Stop(etcd); err = errors.Join(err, os.RemoveAll(data)) }()
	load := try.Get(b.Start("lockload", nil, filepath.Join(b.Tools, "lockload"), etcd.Addr))
	defer func() { err = errors.Join(err, load.Dismiss()) }()
	u := try.Get(suite.Using(suite.Of("generator", load.Process), suite.Of("etcd", etcd)))
	var did locks
	try.Do(load.Ask(fmt.Sprintf("pairs %d %d %d", b.callers, b.conns, int(b.Span.Seconds())), &did))
	text := try.Get(said(u, did.Done))
	b.Add(table.Figure(fmt.Sprintf("etcd: Lock and Unlock of distinct keys, %d owners", b.callers), float64(did.Done)/did.Seconds, "pairs/s", text),
		table.Figure("etcd: a pair among these, p99", did.P99, "ms", fmt.Sprintf("p50 %.2f, max %.2f", did.P50, did.Max)))
	try.Do(load.Ask(fmt.Sprintf("hot %d %d", contenders, handOvers), &did))
	b.Add(table.Figure(fmt.Sprintf("etcd: hand-over among %d at one key, median", contenders), did.P50, "ms", fmt.Sprintf("p99 %.2f, max %.2f", did.P99, did.Max)))
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
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
	if b.etcd == "" {
		return errors.New("not built")
	}
	data := filepath.Join(string(b.dir), "etcd")
	etcd, err := b.dir.StartEtcd(ctx, b.etcd, data)
	if err != nil {
		return err
	}
	defer func() { etcd.Stop(); err = errors.Join(err, os.RemoveAll(data)) }()
	load, _, err := b.dir.StartOrdered("lockload", b.lockload, etcd.Addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, load.End()) }()
	u, err := using(consumer{"generator", []int{load.PID()}}, consumer{"etcd", []int{etcd.PID()}})
	if err != nil {
		return err
	}
	did, err := order(ctx, load, fmt.Sprintf("pairs %d %d %d", b.callers, b.conns, int(b.span.Seconds())))
	if err != nil {
		return err
	}
	said, err := u.each(did.Done)
	if err != nil {
		return err
	}
	b.add(table.Figure(fmt.Sprintf("etcd: Lock and Unlock of distinct keys, %d owners", b.callers), float64(did.Done)/did.Seconds, "pairs/s", said),
		table.Figure("etcd: a pair among these, p99", did.P99, "ms", fmt.Sprintf("p50 %.2f, max %.2f", did.P50, did.Max)))
	if did, err = order(ctx, load, fmt.Sprintf("hot %d %d", contenders, handOvers)); err != nil {
		return err
	}
	b.add(table.Figure(fmt.Sprintf("etcd: hand-over among %d at one key, median", contenders), did.P50, "ms", fmt.Sprintf("p99 %.2f, max %.2f", did.P99, did.Max)))
	return nil
}

func order(ctx context.Context, load *local.Ordered, line string) (did locks, err error) {
	text, err := load.Order(ctx, line)
	if err == nil {
		err = json.Unmarshal([]byte(text), &did)
	}
	return did, err
}

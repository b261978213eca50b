package claims_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// database is a backend.Claims in memory, which can be told to fail. Its clock is a year ahead of
// this process's.
type database struct {
	mu    sync.Mutex
	ahead time.Duration
	rows  map[backend.ClaimKey]backend.ClaimPlace
	owner [topic.Shards]*dbRun
	next  [topic.Shards]uint64
	// before and after are asked around every call ("open", "take", "give", "commit"); an error
	// fails it, before or after it was done. They may block.
	before, after func(what string, by backend.Owner) error
	commits       int
	opens         int // runs that were begun, or tried to be
}

func newDatabase() *database {
	return &database{ahead: 365 * 24 * time.Hour, rows: map[backend.ClaimKey]backend.ClaimPlace{}}
}

type dbRun struct {
	db     *database
	by     backend.Owner
	fenced bool
}

func (d *database) now() uint64 { return uint64(time.Now().Add(d.ahead).UnixMicro()) }

func (d *database) hooks() (before, after func(string, backend.Owner) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.before, d.after
}

func (d *database) set(before, after func(string, backend.Owner) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

func (d *database) do(what string, by backend.Owner, f func() error) error {
	before, after := d.hooks()
	if before != nil {
		if err := before(what, by); err != nil {
			return err
		}
	}
	d.mu.Lock()
	err := f()
	d.mu.Unlock()
	if err == nil && after != nil {
		err = after(what, by)
	}
	return err
}

func (d *database) OpenClaims(_ context.Context, owner backend.Owner) (backend.ClaimWriter, error) {
	d.mu.Lock()
	d.opens++
	d.mu.Unlock()
	r := &dbRun{db: d, by: owner}
	return r, d.do("open", owner, func() error { return nil })
}

func (r *dbRun) Take(_ context.Context, shards []int, force bool, visit func(backend.ClaimPlace)) (taken []backend.ClaimShard, now uint64, err error) {
	d := r.db
	err = d.do("take", r.by, func() error {
		if r.fenced {
			return backend.ErrFenced
		}
		for _, n := range shards {
			switch o := d.owner[n]; {
			case o == nil || o == r:
			case !force:
				return backend.ErrShardTaken
			default:
				d.end(o)
			}
		}
		for _, n := range shards {
			d.owner[n] = r
			taken = append(taken, backend.ClaimShard{Shard: n, Next: d.next[n] + 1})
			d.next[n] += backend.ClaimNumbers
		}
		rows := slices.SortedFunc(maps.Values(d.rows), func(a, b backend.ClaimPlace) int {
			return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Seq, b.Seq))
		})
		for _, p := range rows {
			if slices.Contains(shards, p.Shard) {
				visit(p)
			}
		}
		now = d.now()
		return nil
	})
	return taken, now, err
}

// end fences a run.
func (d *database) end(r *dbRun) {
	r.fenced = true
	for n, o := range d.owner {
		if o == r {
			d.owner[n] = nil
		}
	}
}

func (r *dbRun) Give(_ context.Context, shards []int) error {
	return r.db.do("give", r.by, func() error {
		if r.fenced {
			return backend.ErrFenced
		}
		for _, n := range shards {
			if r.db.owner[n] == r {
				r.db.owner[n] = nil
			}
		}
		return nil
	})
}

func (r *dbRun) Commit(_ context.Context, c *backend.ClaimChanges) (now uint64, err error) {
	d := r.db
	err = d.do("commit", r.by, func() error {
		if r.fenced {
			return backend.ErrFenced
		}
		d.commits++
		for _, p := range c.Put {
			d.rows[p.ClaimKey] = p
		}
		for _, k := range c.Delete {
			delete(d.rows, k)
		}
		now = d.now()
		return nil
	})
	return now, err
}

func (r *dbRun) Close() error {
	r.db.mu.Lock()
	defer r.db.mu.Unlock()
	r.db.end(r)
	return nil
}

// opened is how many runs were begun, or tried to be.
func (d *database) opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opens
}

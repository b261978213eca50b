package sessions

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// pages is what the pages of the database say, by session. Pages never change, so that each is read
// once, and the list of those that there are says what is missing: whoever wrote them, and whatever
// became of a store, what sync has seen is what the database holds.
type pages struct {
	server *server.Server
	// turn is had by who looks into the database; the others share what that found.
	turn chan struct{}

	mu              sync.Mutex
	begun, finished uint64 // rounds of looking
	// the server that the log is written on: ids of pages are given again by one that was put back
	at      string
	through int64 // pages below are void
	read    map[int64]bool
	cursors map[sessionKey][]placed // by topic
	n       int                     // of cursors
}

// placed is the newest known cursor of a session in a topic, and the last page that has it.
type placed struct {
	cursor
	page int64
}

func newPages(s *server.Server) *pages {
	return &pages{server: s, turn: make(chan struct{}, 1), read: map[int64]bool{}, cursors: map[sessionKey][]placed{}}
}

// sync brings it to what was committed when sync was called, or later. Callers at a time share one
// look.
func (p *pages) sync(ctx context.Context) error {
	p.mu.Lock()
	mine := p.begun + 1 // one that is under way began before
	p.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	p.mu.Lock()
	done := p.finished >= mine
	if !done {
		p.begun++
		mine = p.begun
	}
	p.mu.Unlock()
	if done {
		return nil
	}
	if err := p.look(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished = mine
	return nil
}

const (
	// pagesAtATime bounds one question.
	pagesAtATime = 128
	// looks is how often what vanishes while it is read is asked for: the packed pages are there
	// instead.
	looks = 10
)

var errVanished = errors.New("postgres: pages of cursors vanish faster than they are read")

// look finds what is missing, reads it, and lets go of what is void. The caller has the turn.
func (p *pages) look(ctx context.Context) error {
	for range looks {
		through, missing, err := p.list(ctx)
		if err != nil {
			return err
		}
		all := true
		for part := range slices.Chunk(missing, pagesAtATime) {
			n, err := p.fetch(ctx, part)
			if err != nil {
				return err
			}
			all = all && n == len(part)
		}
		if all {
			p.forget(through)
			return nil
		}
	}
	return errVanished
}

const (
	// pagesEased are read at a time by ease, with easePause between them.
	pagesEased = 16
	easePause  = 20 * time.Millisecond
)

// ease reads what is missing a little at a time, and lets others look meanwhile: a sync after it
// finds little to read.
func (p *pages) ease(ctx context.Context) error {
	_, missing, err := p.list(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(missing, pagesEased) {
		if _, err := p.fetch(ctx, part); err != nil {
			return err
		}
		if err := rest(ctx, easePause); err != nil {
			return err
		}
	}
	return nil
}

// list is which pages count, less those that were read. Of a server that was accepted since, none
// was.
func (p *pages) list(ctx context.Context) (through int64, missing []int64, err error) {
	var ids []int64
	var at string
	err = p.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT f.through, ARRAY(SELECT id FROM pushmesh.cursor_page WHERE id >= f.through), s.system || '/' || s.timeline
			FROM pushmesh.cursor_folded AS f, pushmesh.server AS s`).Scan(&through, &ids, &at)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && at != p.at {
		p.at, p.through, p.n = at, 0, 0
		clear(p.read)
		clear(p.cursors)
	}
	for _, id := range ids {
		if !p.read[id] {
			missing = append(missing, id)
		}
	}
	return through, missing, err
}

func (p *pages) fetch(ctx context.Context, ids []int64) (n int, err error) {
	err = p.server.Do(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id, version, `+pageColumns+` FROM pushmesh.cursor_page WHERE id = ANY($1) ORDER BY id`, ids)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scanPage)
		n = len(found)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range found {
			p.add(f)
		}
		return err
	})
	return n, err
}

// stored is a page as it lies in the database.
type stored struct {
	page
	id, version int64
}

func scanPage(row pgx.CollectableRow) (*stored, error) {
	s := &stored{}
	var version *int64
	err := row.Scan(&s.id, &version, &s.users, &s.names, &s.generations, &s.topics, &s.epochs, &s.floors, &s.lists)
	if s.version = s.id; version != nil {
		s.version = *version
	}
	return s, err
}

// add takes a page in, unless it became void while it was read: what took its place need not say
// so. p.mu is held.
func (p *pages) add(s *stored) {
	if p.read[s.id] || s.id < p.through {
		return
	}
	p.read[s.id] = true
	for i := range s.len() {
		k, c := s.at(i, s.version)
		all := p.cursors[k]
		at, found := slices.BinarySearchFunc(all, c.topic, func(c placed, topic string) int { return strings.Compare(c.topic, topic) })
		switch {
		case !found:
			p.cursors[k] = slices.Insert(all, at, placed{c, s.id})
			p.n++
		case all[at].before(&c):
			all[at] = placed{c, s.id}
		}
	}
}

// forget lets go of pages that are void, and of cursors that no other page has.
func (p *pages) forget(through int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if through <= p.through {
		return
	}
	p.through = through
	for id := range p.read {
		if id < through {
			delete(p.read, id)
		}
	}
	for k, all := range p.cursors {
		left := slices.DeleteFunc(all, func(c placed) bool { return c.page < through })
		p.n -= len(all) - len(left)
		if len(left) == 0 {
			delete(p.cursors, k)
		} else {
			p.cursors[k] = left
		}
	}
}

// of is what the pages say of a session: a copy, by topic.
func (p *pages) of(k sessionKey) []placed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.cursors[k])
}

// below is every cursor whose newest page has an id below through.
func (p *pages) below(through int64) []owned {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []owned
	for k, cursors := range p.cursors {
		for _, c := range cursors {
			if c.page < through {
				all = append(all, owned{k, c.cursor})
			}
		}
	}
	return all
}

// owned is a cursor and whose it is.
type owned struct {
	sessionKey
	cursor
}

// inOrder is how locks are taken.
func inOrder(a, b owned) int {
	return cmp.Or(strings.Compare(a.user, b.user), strings.Compare(a.name, b.name), strings.Compare(a.topic, b.topic))
}

// size is how many cursors there are, and in how many pages.
func (p *pages) size() (cursors, pages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n, len(p.read)
}

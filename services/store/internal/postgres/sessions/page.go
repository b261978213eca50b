package sessions

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// sessionKey of a session.
type sessionKey struct{ user, name string }

// cursor is how far a session has come in a topic, as written under a generation. The greatest
// (generation, version) holds.
type cursor struct {
	topic                      string
	generation, version, epoch uint64
	floor                      uint64
	lists                      string // see migration 00020
}

// removed is the list of a cursor that is wanted no more.
const removed = "-"

func (c *cursor) before(other *cursor) bool {
	if c.generation != other.generation {
		return c.generation < other.generation
	}
	return c.version <= other.version // within a page the last one holds
}

func cursorOf(generation uint64, c *meshv1.SessionCursor) cursor {
	out := cursor{topic: c.GetTopic(), generation: generation, epoch: c.GetEpoch(), floor: c.GetFloor()}
	if len(c.GetAcked())+len(c.GetAttempts()) > 0 {
		out.lists = joinLists(c)
	}
	return out
}

func joinLists(c *meshv1.SessionCursor) string {
	tried := slices.Sorted(maps.Keys(c.GetAttempts()))
	b := []byte("{")
	add := func(i int, v uint64) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	for i, seq := range c.GetAcked() {
		add(i, seq)
	}
	b = append(b, "}|{"...)
	for i, seq := range tried {
		add(i, seq)
	}
	b = append(b, "}|{"...)
	for i, seq := range tried {
		add(i, uint64(c.GetAttempts()[seq]))
	}
	return string(append(b, '}'))
}

// public is the cursor as it was written.
func (c *cursor) public() (*meshv1.SessionCursor, error) {
	out := &meshv1.SessionCursor{Topic: c.topic, Epoch: c.epoch, Floor: c.floor}
	if c.lists == "" {
		return out, nil
	}
	parts := strings.Split(c.lists, "|")
	if len(parts) != 3 {
		return nil, fmt.Errorf("postgres: %q are no lists of a cursor", c.lists)
	}
	var lists [3][]uint64
	for i, part := range parts {
		for n := range strings.SplitSeq(strings.Trim(part, "{}"), ",") {
			if n == "" {
				continue
			}
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("postgres: lists of a cursor: %w", err)
			}
			lists[i] = append(lists[i], uint64(v))
		}
	}
	if len(lists[1]) != len(lists[2]) {
		return nil, fmt.Errorf("postgres: %q are no lists of a cursor", c.lists)
	}
	out.Acked = lists[0]
	for i, seq := range lists[1] {
		if out.Attempts == nil {
			out.Attempts = make(map[uint64]uint32, len(lists[1]))
		}
		out.Attempts[seq] = uint32(lists[2][i])
	}
	return out, nil
}

// page is the columns of many cursors, in the order in which they were written.
type page struct {
	users, names   []string
	generations    []int64
	topics         []string
	epochs, floors []int64
	lists          []string
	versions       []int64 // of a fold; not stored
}

func newPage(room int) *page {
	return &page{
		users: make([]string, 0, room), names: make([]string, 0, room), generations: make([]int64, 0, room), topics: make([]string, 0, room),
		epochs: make([]int64, 0, room), floors: make([]int64, 0, room), lists: make([]string, 0, room),
	}
}

func (p *page) len() int { return len(p.users) }

func (p *page) add(k sessionKey, c cursor) {
	p.users, p.names, p.generations = append(p.users, k.user), append(p.names, k.name), append(p.generations, int64(c.generation))
	p.topics, p.epochs, p.floors = append(p.topics, c.topic), append(p.epochs, int64(c.epoch)), append(p.floors, int64(c.floor))
	p.lists, p.versions = append(p.lists, c.lists), append(p.versions, int64(c.version))
}

// take adds what a write says of cursors.
func (p *page) take(w *meshv1.SessionWrite) {
	k := sessionKey{w.GetUser(), w.GetName()}
	for _, c := range w.GetCursors() {
		p.add(k, cursorOf(w.GetGeneration(), c))
	}
	for _, t := range w.GetRemoveTopics() {
		p.add(k, cursor{topic: t, generation: w.GetGeneration(), lists: removed})
	}
}

func (p *page) args() []any {
	return []any{p.users, p.names, p.generations, p.topics, p.epochs, p.floors, p.lists}
}

// at is the i-th cursor, of whom, as of version.
func (p *page) at(i int, version int64) (sessionKey, cursor) {
	return sessionKey{p.users[i], p.names[i]}, cursor{
		topic: p.topics[i], generation: uint64(p.generations[i]), version: uint64(version), epoch: uint64(p.epochs[i]),
		floor: uint64(p.floors[i]), lists: p.lists[i],
	}
}

const pageColumns = `users, names, generations, topics, epochs, floors, lists`

const (
	insertPage = `INSERT INTO pushmesh.cursor_page (id, ` + pageColumns + `)
		VALUES (nextval('pushmesh.cursor_page_id'), $1, $2, $3, $4, $5, $6, $7)`
	insertPacked = `INSERT INTO pushmesh.cursor_page (id, ` + pageColumns + `, version)
		VALUES (nextval('pushmesh.cursor_page_id'), $1, $2, $3, $4, $5, $6, $7, $8)`
	// insertHeld stores a page if every session in it is held under the generation named, and is
	// known to be used, else nothing. The question is a scalar one, so that it is always a look
	// into the index for each cursor.
	insertHeld = `INSERT INTO pushmesh.cursor_page (id, ` + pageColumns + `)
		SELECT nextval('pushmesh.cursor_page_id'), $1, $2, $3, $4, $5, $6, $7 WHERE NOT EXISTS (
			SELECT FROM unnest($1::text[], $2::text[], $3::bigint[]) AS w (user_id, name, generation) WHERE (
				SELECT s.generation = w.generation AND s.edge <> '' AND s.used FROM pushmesh.session AS s
				WHERE s.user_id = w.user_id AND s.name = w.name) IS NOT TRUE)`
)

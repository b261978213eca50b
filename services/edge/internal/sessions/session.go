// Package sessions is the durable session that a connection holds: its filters, where it stands in
// the topics that no position of the connection has taken up, its dead letters, and what of all
// that is to be stored, and when.
package sessions

import (
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/cursor"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/letters"
)

// SaveDelay is how long changes of a session gather before they are handed to the mesh.
const SaveDelay = 200 * time.Millisecond

// Session is used by the loop of its connection alone.
type Session struct {
	User, Name string
	Conn       uint64 // the id of the connection that holds it
	Filters    []string

	generation uint64 // 0: not attached yet
	added      int    // filters, ever: those that came last are the last of Filters
	// cursors are of topics that no position of the connection has taken up.
	cursors map[string]*meshv1.SessionCursor
	letters []*meshv1.DeadLetter
	saveAt  int64        // 0: nothing has changed
	pace    letters.Pace // of messages that are given up for want of an ACK
	// storing are the refs of subscriptions whose first positions are being stored.
	storing map[uint32]struct{}
}

// Attach takes what was stored, once the session is held.
func (s *Session) Attach(e *exchange.Attached) {
	s.generation, s.Filters = e.Generation, e.Filters
	if s.cursors = e.Cursors; s.cursors == nil {
		s.cursors = map[string]*meshv1.SessionCursor{}
	}
}

// What a session, each of its filters and each of its positions take, in bytes, names included.
const (
	sessionBytes = 1 << 10
	filterBytes  = 128
	cursorBytes  = 512
)

// Bytes is about how much memory its filters take, and the positions that nobody has taken up.
func (s *Session) Bytes() int {
	return sessionBytes + filterBytes*len(s.Filters) + cursorBytes*len(s.cursors)
}

// Write is an empty write of this hold of the session.
func (s *Session) Write() *meshv1.SessionWrite {
	return &meshv1.SessionWrite{User: s.User, Name: s.Name, Generation: s.generation}
}

// SaveSoon notes that something has changed. first reports whether nothing had before; it is to be
// saved at a time then, in nanoseconds as now is.
func (s *Session) SaveSoon(now int64) (at int64, first bool) {
	if s.saveAt != 0 {
		return s.saveAt, false
	}
	s.saveAt = now + int64(SaveDelay)
	return s.saveAt, true
}

// SaveAt is when changes are to be saved; 0: there are none.
func (s *Session) SaveAt() int64 { return s.saveAt }

// BeginSave begins to save what has changed so far.
func (s *Session) BeginSave() { s.saveAt = 0 }

// Has reports whether the session stands somewhere in a topic that nobody has taken up.
func (s *Session) Has(topic string) bool { return s.cursors[topic] != nil }

// Positions is how many topics that are.
func (s *Session) Positions() int { return len(s.cursors) }

// Take is where the session stands in a topic, for a position of the connection that takes it up
// and owns it from here on; nil where it stands nowhere. size is how much there is in it.
func (s *Session) Take(topic string) (cur *cursor.Cursor, size int) {
	stored := s.cursors[topic]
	if stored == nil {
		return nil, 0
	}
	delete(s.cursors, topic)
	return cursor.New(stored), len(stored.GetAcked()) + len(stored.GetAttempts())
}

// Put gives back where the session stands in a topic, once its position there has ended.
func (s *Session) Put(topic string, cur *meshv1.SessionCursor) { s.cursors[topic] = cur }

// AddFilter puts a filter into the session, and into a write where the session did not have it.
func (s *Session) AddFilter(filter string, w *meshv1.SessionWrite) {
	if !slices.Contains(s.Filters, filter) {
		name := strings.Clone(filter)
		s.Filters = append(s.Filters, name)
		s.added++
		w.AddFilters = []string{name}
	}
}

// Store notes that the first positions of a subscription are being stored.
func (s *Session) Store(ref uint32) {
	if s.storing == nil {
		s.storing = map[uint32]struct{}{}
	}
	s.storing[ref] = struct{}{}
}

// Stored notes the answer, and reports whether it was waited for.
func (s *Session) Stored(ref uint32) (waited bool) {
	_, waited = s.storing[ref]
	delete(s.storing, ref)
	return waited
}

// GiveUp makes a message a dead letter of the session, at a Unix time in microseconds.
func (s *Session) GiveUp(m *exchange.Message, attempts uint32, why wirev1.Code, at uint64) {
	s.letters = append(s.letters, &meshv1.DeadLetter{
		Topic: m.Topic, Epoch: m.Epoch, Seq: m.Seq, Body: slices.Clone(m.Body()), Reason: why, Attempts: attempts,
		User: s.User, Session: s.Name, At: at,
	})
}

// MayExhaust reports whether one more message may be given up for want of an ACK now, in
// nanoseconds, and counts it then.
func (s *Session) MayExhaust(now int64, l *letters.Limits) bool { return s.pace.May(now, s.User, l) }

// HasLetters reports whether there are dead letters that were not handed in.
func (s *Session) HasLetters() bool { return len(s.letters) > 0 }

// TakeLetters moves them into a write.
func (s *Session) TakeLetters(w *meshv1.SessionWrite) { w.DeadLetters, s.letters = s.letters, nil }

package backendtest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/deadletter"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// given is a letter whose message can be read.
func given(t *testing.T, name string, seq uint64, headers map[string]string) *meshv1.DeadLetter {
	t.Helper()
	body, err := proto.Marshal(&wirev1.Message{Payload: []byte("x"), Id: make([]byte, 16), Headers: headers})
	need(t, err)
	l := letter(name, seq)
	l.Body = body
	return l
}

// testLettersAreReplayed appends what a dead letter held again: that letter is gone from the list
// with the append, and others stay.
func testLettersAreReplayed(t *testing.T, db Database) {
	l, b := openLog(t, db, NewClock())
	need(t, b.MakeSlices(within(t), begin))
	g := attach(t, b, from("e1", 1), begin).Generation
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, DeadLetters: []*meshv1.DeadLetter{letter("room/1", 1), letter("room/1", 2)}}), ok)
	listed := func() (ids []uint64) {
		t.Helper()
		all, err := b.ListDeadLetters(within(t), "", 0, 99)
		need(t, err)
		for _, l := range all {
			ids = append(ids, l.GetId())
		}
		return ids
	}
	ids := listed()
	if len(ids) != 2 {
		t.Fatalf("letters %v", ids)
	}
	again := Item("room/1", "again")
	again.DeadLetter = ids[0]
	wantOK(t, l.Append(t, again, Item("room/1", "another"))...)
	if got := listed(); !slices.Equal(got, ids[1:]) {
		t.Errorf("letters %v after the first of %v was replayed", got, ids)
	}
	if got := l.Bodies(t, "room/1"); !slices.Equal(got, []string{"again", "another"}) {
		t.Errorf("the log has %v", got)
	}
}

// copying runs a copier until stop is called; apart appends where no letter is marked by it, nil:
// to the log.
func copying(t *testing.T, l *Log, of deadletter.Letters, apart func([]*meshv1.AppendItem, shardlog.Sink)) (c *deadletter.Copier, stop func()) {
	t.Helper()
	policies := policy.NewTable(nil)
	cfg := deadletter.Config{
		Letters: of, Ownerships: l.Ownerships, Append: l.Log.Append, Policies: func() *policy.Table { return policies },
		Now: NewClock().Now, Logger: slog.New(slog.DiscardHandler),
	}
	if apart != nil {
		cfg.Append, cfg.Apart = apart, func(int) bool { return true }
	}
	c = deadletter.New(cfg)
	need(t, c.Start(t.Context()))
	return c, func() { need(t, c.Stop(within(t))) }
}

// noneUncopied waits until all are.
func noneUncopied(t *testing.T, b backend.Backend, c *deadletter.Copier) {
	t.Helper()
	for ctx := within(t); ; {
		c.Added()
		left, err := b.UncopiedLetters(ctx, 0, 99)
		need(t, err)
		if len(left) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not copied: %v", left)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// wantHeads waits until the log knows as much as that, as it learns of a commit a moment after the
// database has it, and fails where it has more.
func wantHeads(t *testing.T, l *Log, want map[string]uint64) {
	t.Helper()
	topics := slices.Sorted(maps.Keys(want))
	for ctx := within(t); ; {
		hs, err := l.Heads(ctx, topics, nil, 0)
		need(t, err)
		short := false
		for i, h := range hs {
			if h.GetHead() > want[topics[i]] {
				t.Fatalf("%s: head %d, want %d", topics[i], h.GetHead(), want[topics[i]])
			}
			short = short || h.GetHead() < want[topics[i]]
		}
		if !short {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("heads %v, want %v", hs, want)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// marking counts marks, and refuses the first ones.
type marking struct {
	backend.Backend
	refuse int
	marked map[uint64]int
}

func (m *marking) MarkLettersCopied(ctx context.Context, ids []uint64) error {
	if m.refuse > 0 {
		m.refuse--
		return errors.New("refused by the test")
	}
	for _, id := range ids {
		m.marked[id]++
	}
	return m.Backend.MarkLettersCopied(ctx, ids)
}

// Letters are copied each once, more than a page of them, and marked by the append itself; those of
// dead-letter topics and of copies are not copied at all. After a takeover nothing is copied again.
func testLettersAreCopied(t *testing.T, db Database) {
	clock := NewClock()
	l, b := openLog(t, db, clock)
	need(t, b.MakeSlices(within(t), begin))
	g := attach(t, b, from("e1", 1), begin).Generation
	give := func(all ...*meshv1.DeadLetter) {
		t.Helper()
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, DeadLetters: all}), ok)
	}
	const many = 150
	var all []*meshv1.DeadLetter
	for seq := range uint64(many) {
		all = append(all, given(t, "room/1", seq+1, nil))
	}
	give(append(all, given(t, "$dead/room", 1, nil), given(t, "room/2", 1, map[string]string{"dead-letter-topic": "room/1"}), letter("room/3", 1))...)
	m := &marking{Backend: b, marked: map[uint64]int{}}
	c, stop := copying(t, l, m, nil)
	noneUncopied(t, b, c)
	give(given(t, "user/1", 1, nil))
	noneUncopied(t, b, c)
	stop()
	if len(m.marked) != 3 { // of a dead-letter topic, of a copy, and unreadable
		t.Errorf("marked without an append: %v", m.marked)
	}
	wantHeads(t, l, map[string]uint64{"$dead/room": many, "$dead/user": 1, "$dead/$dead": 0})
	l.Close(t)
	second := OpenLog(t, b, owner("b"), 2, clock.Now)
	second.WaitReady(t)
	c, stop = copying(t, second, b, nil)
	give(given(t, "room/1", many+1, nil))
	noneUncopied(t, b, c)
	stop()
	wantHeads(t, second, map[string]uint64{"$dead/room": many + 1})
}

// Where an append can't mark the letter, since it is in another database, the letter is marked
// afterwards; and as often as that fails, nothing is appended again.
func testLettersAreMarkedLater(t *testing.T, db Database) {
	clock := NewClock()
	l, b := openLog(t, db, clock)
	need(t, b.MakeSlices(within(t), begin))
	g := attach(t, b, from("e1", 1), begin).Generation
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, DeadLetters: []*meshv1.DeadLetter{
		given(t, "room/1", 1, nil), given(t, "user/1", 1, nil),
	}}), ok)
	elsewhere := func(items []*meshv1.AppendItem, sink shardlog.Sink) {
		sent := make([]*meshv1.AppendItem, len(items))
		for i, item := range items {
			sent[i] = proto.CloneOf(item)
			sent[i].CopiedLetter = 0
		}
		l.Log.Append(sent, sink)
	}
	m := &marking{Backend: b, refuse: 2, marked: map[uint64]int{}}
	c, stop := copying(t, l, m, elsewhere)
	noneUncopied(t, b, c)
	stop()
	if m.refuse > 0 || len(m.marked) != 2 {
		t.Errorf("refused %d times less than wanted, marked %v", m.refuse, m.marked)
	}
	wantHeads(t, l, map[string]uint64{"$dead/room": 1, "$dead/user": 1}) // a copy each
}

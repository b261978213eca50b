package assignment

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

const (
	epoch    = 1000
	attempts = 4
)

// topics of a world.
var topics = []string{"a", "b", "c"}

func message(topic string, seq uint64, k string) *exchange.Message {
	m := &wirev1.Message{Payload: []byte("x"), Id: make([]byte, 16)}
	if k != "" {
		m.Headers = map[string]string{"k": k, "other": "y"}
	}
	body, err := wire.Body(m)
	if err != nil {
		panic(err)
	}
	e := uint64(epoch)
	if seq == 0 {
		e = 0
	}
	return &exchange.Message{Topic: topic, Epoch: e, Seq: seq, Frame: wire.AppendMessage(nil, topic, seq, body)}
}

// world is everything around a core: logs, members that process, a store, and what was seen so far.
// It fails the test when a promise is broken.
type world struct {
	t    *rapid.T
	c    *Core
	key  string
	now  int64
	logs map[string][]*exchange.Message

	next    uint64 // of members
	windows map[MemberID]int
	paused  map[MemberID]bool
	has     map[MemberID][]Assignment          // with members, in the order assigned
	words   map[MemberID][]*meshv1.GroupSettle // the last ones, which edges may tell again
	stored  map[string]*meshv1.SessionCursor
	letters map[key]int
	refused map[key]int // how often a member gave word that it was not ACKed
	acked   map[key]bool
	seen    map[key]int    // assignments
	last    map[string]int // by key, the highest place in its order that was assigned first
	order   map[key]int    // place of a message among those of its key
	count   map[string]int
	full    bool // the memory of all groups is used up
	strict  bool // no dispatcher has died yet that may have assigned what nobody noted
}

func newWorld(t *rapid.T, k string) *world {
	w := &world{
		t: t, key: k, logs: map[string][]*exchange.Message{"a": nil, "b": nil, "c": nil}, windows: map[MemberID]int{}, paused: map[MemberID]bool{}, has: map[MemberID][]Assignment{},
		words:  map[MemberID][]*meshv1.GroupSettle{},
		stored: map[string]*meshv1.SessionCursor{}, letters: map[key]int{}, refused: map[key]int{}, acked: map[key]bool{}, seen: map[key]int{},
		last: map[string]int{}, order: map[key]int{}, count: map[string]int{}, strict: true,
	}
	w.begin(false, false)
	return w
}

func (w *world) begin(resumed, unclean bool) {
	w.c = New(Config{Key: w.key, MaxAttempts: func(string) uint32 { return attempts }, QueueMessages: 8, User: "u", Session: "s", Full: func() bool { return w.full }})
	w.c.Advance(w.now, 1)
	b := &Begin{Filter: "#", Resumed: resumed, Unclean: unclean, Start: exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST}}
	for _, name := range topics {
		log := w.logs[name]
		if len(log) == 0 { // it appears later
			continue
		}
		b.Heads = append(b.Heads, exchange.Head{Topic: name, Epoch: epoch, Head: uint64(len(log)), Oldest: 1})
		if s := w.stored[name]; s != nil {
			b.Cursors = append(b.Cursors, s)
		}
	}
	w.c.Begin(b)
	w.save(false)
}

// save is what the store takes.
func (w *world) save(all bool) {
	cursors, letters := w.c.Save(all)
	for _, s := range cursors {
		w.stored[s.GetTopic()] = s
	}
	for _, l := range letters {
		k := key{l.GetTopic(), l.GetEpoch(), l.GetSeq()}
		if w.letters[k]++; w.refused[k] == 0 || l.GetAttempts() < attempts {
			w.t.Fatalf("%v is a dead letter after %d attempts, and members gave word of %d", k, l.GetAttempts(), w.refused[k])
		}
		for m, all := range w.has {
			if w.strict && slices.ContainsFunc(all, func(a Assignment) bool { return id(a.Message) == k }) {
				w.t.Fatalf("%v is a dead letter while %v has it", k, m)
			}
		}
	}
}

func id(m *exchange.Message) key { return key{m.Topic, m.Epoch, m.Seq} }

func (w *world) publish(topic, k string, live bool) {
	m := message(topic, uint64(len(w.logs[topic]))+1, k)
	w.logs[topic] = append(w.logs[topic], m)
	of := w.keyed(m)
	w.order[id(m)] = w.count[of]
	w.count[of]++
	if live {
		w.c.Live([]*exchange.Message{m})
	}
}

// keyed is the key of a message, with its topic: between topics no order is promised.
func (w *world) keyed(m *exchange.Message) string {
	k, _ := header(m.Body(), "k")
	return m.Topic + " " + k
}

func (w *world) join(held []Assignment) MemberID {
	w.next++
	m := MemberID{Edge: fmt.Sprint("e", w.next%3), ID: w.next}
	w.windows[m] = rapid.IntRange(1, 4).Draw(w.t, "window")
	w.has[m] = held
	w.rejoin(m)
	return m
}

func (w *world) rejoin(m MemberID) {
	j := &meshv1.GroupJoin{Window: uint32(w.windows[m]), Settled: w.words[m]}
	if w.paused[m] {
		j.Window = 0
	}
	for _, a := range w.has[m] {
		j.Held = append(j.Held, &meshv1.GroupHeld{Topic: a.Message.Topic, Epoch: a.Message.Epoch, Seq: a.Message.Seq, Attempt: a.Attempt, Key: w.c.keys.Of(a.Message)})
	}
	w.c.Join(m, j)
}

// step takes what came out and checks it; reads are answered at once.
func (w *world) step() {
	for range 1000 {
		out := w.c.Take()
		for _, a := range out.Assigned {
			w.assigned(a)
		}
		for _, r := range out.Reads {
			log := w.logs[r.Topic]
			some := log[min(int(r.From)-1, len(log)):]
			w.c.Range(&exchange.Range{Topic: r.Topic, From: r.From, Epoch: epoch, Head: uint64(len(log)), Oldest: 1, Messages: some[:min(3, len(some))]})
		}
		if len(out.Assigned)+len(out.Reads) == 0 {
			return
		}
	}
	w.t.Fatal("it never rests")
}

func (w *world) assigned(a Assignment) {
	k := id(a.Message)
	if w.acked[k] && w.strict {
		w.t.Fatalf("%v was ACKed and is assigned again", k)
	}
	if w.paused[a.Member] {
		w.t.Fatalf("%v is assigned to %v, which is paused", k, a.Member)
	}
	if _, member := w.windows[a.Member]; !member {
		w.t.Fatalf("%v is assigned to %v, which is none", k, a.Member)
	}
	if w.seen[k] > 0 && a.Attempt == 0 {
		w.t.Fatalf("%v is assigned twice as if for the first time", k)
	}
	if w.letters[k] > 0 && w.strict {
		w.t.Fatalf("%v is a dead letter and is assigned", k)
	}
	w.seen[k]++
	w.has[a.Member] = append(w.has[a.Member], a)
	if n := len(w.has[a.Member]); n > w.windows[a.Member] {
		w.t.Fatalf("%v has %d messages, its window is %d", a.Member, n, w.windows[a.Member])
	}
	if w.seen[k] == 1 {
		of := w.keyed(a.Message)
		if w.order[k] < w.last[of] {
			w.t.Fatalf("%v is assigned for the first time after a later one", k)
		}
		w.last[of] = w.order[k]
	}
	if w.key == "" {
		return
	}
	for m, others := range w.has {
		for _, o := range others {
			if m != a.Member && w.c.keys.Of(o.Message) == w.c.keys.Of(a.Message) {
				w.t.Fatalf("key %q is with %v and %v", w.c.keys.Of(o.Message), m, a.Member)
			}
		}
	}
}

// take removes one of a member's messages.
func (w *world) take(m MemberID, i int) Assignment {
	a := w.has[m][i]
	w.has[m] = slices.Delete(w.has[m], i, i+1)
	return a
}

func (w *world) settle(m MemberID, a Assignment, how meshv1.GroupSettle_How, delay uint32) {
	if how == meshv1.GroupSettle_HOW_ACKED {
		w.acked[id(a.Message)] = true
	} else {
		w.refused[id(a.Message)]++
	}
	word := &meshv1.GroupSettle{Topic: a.Message.Topic, Epoch: a.Message.Epoch, Seq: a.Message.Seq, How: how, DelayMs: delay}
	w.words[m] = append(w.words[m], word)
	w.words[m] = w.words[m][max(len(w.words[m])-3, 0):]
	w.c.Settle(m, word)
}

// pauseAll has all members take nothing more.
func (w *world) pauseAll() {
	for _, m := range w.members(false) {
		w.paused[m] = true
		w.rejoin(m)
	}
}

// gone forgets a member, and what it had.
func (w *world) gone(m MemberID) {
	delete(w.windows, m)
	delete(w.paused, m)
	delete(w.has, m)
	delete(w.words, m)
}

func (w *world) members(nonEmpty bool) (all []MemberID) {
	for m := range w.windows {
		if !nonEmpty || len(w.has[m]) > 0 {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b MemberID) int { return int(a.ID) - int(b.ID) })
	return all
}

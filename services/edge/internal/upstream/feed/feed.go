// Package feed puts what routers send to an edge into order for its loops. It knows for every
// durable topic how far it has come, holds back what is ahead of a hole, says what must be read
// from the log, and keeps recent messages for those who read. It does no I/O: deliveries, heads,
// ranges and the time are put in; runs for loops and reads come out.
package feed

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// MaxLoops is how many loops a feed can serve, that of the groups' dispatchers included: a topic's
// loops are bits of a word.
const MaxLoops = 64

// Config of a feed; zero values mean the defaults given.
type Config struct {
	Loops int
	// Durable reports whether a topic's policy makes it durable.
	Durable func(topic string) bool
	// Hold is how long messages ahead of a hole wait for it to be filled before the log is read: 20
	// ms.
	Hold time.Duration
	// Retry is how long a failed read waits: 500 ms.
	Retry time.Duration
	// RingMessages (512) and RingTopicBytes (512 KiB) bound the recent messages of a topic,
	// RingBytes (64 MiB) those of all.
	RingMessages, RingTopicBytes, RingBytes int
	// HeldMessages (1,024) and HeldBytes (1 MiB) bound what a topic holds back; more is dropped,
	// and read from the log later.
	HeldMessages, HeldBytes int
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		at *int
		to int
	}{
		{&c.RingMessages, 512},
		{&c.RingTopicBytes, 512 << 10},
		{&c.RingBytes, 64 << 20},
		{&c.HeldMessages, 1024},
		{&c.HeldBytes, 1 << 20},
	} {
		if *d.at == 0 {
			*d.at = d.to
		}
	}
	if c.Hold == 0 {
		c.Hold = 20 * time.Millisecond
	}
	if c.Retry == 0 {
		c.Retry = 500 * time.Millisecond
	}
	return c
}

// Read asks for a range of a topic's log, to be answered by ReadDone.
type Read struct {
	Topic    string
	Epoch    uint64
	From, To uint64
}

// Feed is not safe for concurrent use; its Stats are.
type Feed struct {
	cfg   Config
	stats Stats

	// Which loops want what.
	exact   map[string]uint64
	wild    topic.Index[int]
	filters map[string]*filter
	lastGen uint64 // of a filter
	wildGen uint64
	scratch []int

	topics   map[string]*state
	all      []*state          // in no order, each knows its place
	based    topic.Index[bool] // filters of which every topic that existed has a state
	covering []bool            // scratch of covered
	basing   []uint64          // questions about topics of filters under way: what appeared before
	// topics that came to have messages for loops since the oldest of these
	appeared []*state
	forgot   uint64 // how many did before

	gaps    []due // in order: the hold is the same for all
	retries []due // likewise
	recent  ring

	owing   map[int]map[*state]bool // loops that refused, and the topics they miss
	sweep   bool                    // topics may have lost their last loop
	swept   time.Time               // when a sweep began
	unswept int                     // those of all before this one are still to be looked at
	out     [][]*exchange.Message
	reads   []Read
	sampled []*exchange.Message
}

// filter with wildcards that some loop wants.
type filter struct {
	loops uint64
	// gen differs for a filter that was left by all and joined anew: what was asked for before says
	// nothing of topics that appeared in between.
	gen   uint64
	based bool // its topics were all asked for since it was joined
}

type due struct {
	st *state
	at time.Time
}

// state of a durable topic that some loop wants.
type state struct {
	topic string
	at    int // in Feed.all
	epoch uint64
	// known says that everything after last is owed to the loops. Before, messages are held until
	// the head is known.
	known bool
	last  uint64 // emitted to the loops, without holes but those of retention
	want  uint64 // the highest seq known to exist
	// oldest is the lowest seq retained when the store was asked last; 0: never asked.
	oldest uint64

	pending int // heads asked for that will make it known
	held    []*exchange.Message
	bytes   int // of held

	gapAt   time.Time // when the log is read; zero: no gap, or a read is under way
	heldAt  time.Time // when the topic began to wait for the first time: to be known, if it is not
	reading Read      // under way; the zero Read: none
	tries   int       // reads in a row that brought nothing

	mask    uint64
	maskGen uint64

	owed map[int]uint64      // by loop: the first seq it refused
	tail *exchange.Message   // while owed: the last message
	ring []*exchange.Message // contiguous, the last one's seq is last
	size int                 // bytes of ring

	newer, older *state // in Feed.recent
}

// New makes a feed that no loop wants anything of.
func New(cfg Config) *Feed {
	cfg = cfg.withDefaults()
	return &Feed{
		cfg:     cfg,
		exact:   map[string]uint64{},
		filters: map[string]*filter{},
		topics:  map[string]*state{},
		owing:   map[int]map[*state]bool{},
		out:     make([][]*exchange.Message, cfg.Loops),
	}
}

// Stats of the feed.
func (f *Feed) Stats() *Stats { return &f.stats }

// Deliver takes a message that a router sent.
func (f *Feed) Deliver(now time.Time, m *exchange.Message) {
	if m.Epoch == 0 {
		f.ephemeral(m)
		return
	}
	st := f.topics[m.Topic]
	if st == nil {
		if f.maskOf(m.Topic) == 0 {
			f.stats.Unwanted.Add(1)
			return
		}
		st = f.add(m.Topic)
	}
	switch {
	case m.Epoch < st.epoch:
		f.stats.Old.Add(1)
		return
	case m.Epoch > st.epoch:
		f.restart(st, m.Epoch)
	}
	if !st.known && f.covered(m.Topic) {
		f.begin(st, 0)
	}
	switch {
	case st.known && m.Seq <= st.last:
		f.stats.Duplicates.Add(1)
		return
	case st.known && m.Seq == st.last+1:
		f.emit(st, m)
		f.release(st)
	default:
		f.hold(st, m)
	}
	f.settle(now, st, f.cfg.Hold)
}

func (f *Feed) ephemeral(m *exchange.Message) {
	mask := f.maskOf(m.Topic)
	if mask == 0 {
		f.stats.Unwanted.Add(1)
		return
	}
	f.sample(m)
	for loop := range f.out {
		if mask&(1<<loop) != 0 {
			f.out[loop] = append(f.out[loop], m)
		}
	}
}

// Head takes what the store said of a topic, and tells whether messages are missing.
func (f *Feed) Head(now time.Time, h exchange.Head) (missing bool) {
	st := f.topics[h.Topic]
	if st == nil {
		if h.Head == 0 || f.maskOf(h.Topic) == 0 {
			return false
		}
		st = f.add(h.Topic)
	}
	if h.Epoch < st.epoch {
		return false
	}
	if h.Epoch > st.epoch {
		f.restart(st, h.Epoch)
	}
	st.oldest = h.Oldest
	if !st.known {
		from := h.Head
		switch {
		case f.covered(h.Topic):
			from = 0 // it appeared after the filter's topics were asked for
		case st.pending == 0 && len(f.basing) == 0 && len(st.held) > 0:
			// Nobody joins who asks for this head. Whoever wants the topic did so before what is
			// held came: its namespace was not durable then.
			from = min(from, st.held[0].Seq-1)
		}
		f.begin(st, from)
	}
	st.want = max(st.want, h.Head)
	missing = st.want > st.last
	f.settle(now, st, f.cfg.Hold)
	return missing
}

// begin makes a topic known: everything after last is owed.
func (f *Feed) begin(st *state, last uint64) {
	if st.known, st.last = true, last; last > 0 {
		f.note(st)
	}
	st.want = max(st.want, last)
	f.release(st)
}

// note remembers for the questions under way that a topic has messages.
func (f *Feed) note(st *state) {
	if len(f.basing) > 0 {
		f.appeared = append(f.appeared, st)
	}
}

// restart begins a new epoch: everything of it is owed, if anything was of the one before.
func (f *Feed) restart(st *state, epoch uint64) {
	if st.epoch != 0 {
		f.stats.Epochs.Add(1)
	}
	st.epoch, st.last, st.want, st.oldest = epoch, 0, 0, 0
	st.held, st.bytes = nil, 0
	st.gapAt, st.tries = time.Time{}, 0
	for loop := range st.owed {
		st.owed[loop] = 1
	}
	f.recent.drop(st)
}

// emit hands the next message to the loops.
func (f *Feed) emit(st *state, m *exchange.Message) {
	if m.Seq != st.last+1 {
		f.recent.drop(st) // retention took what lies between
	}
	if st.last == 0 {
		f.note(st)
	}
	st.last = m.Seq
	st.want = max(st.want, m.Seq)
	f.recent.put(st, m, &f.cfg)
	if st.owed != nil {
		st.tail = m
	}
	f.sample(m)
	mask := f.mask(st)
	for loop := range f.out {
		if mask&(1<<loop) == 0 {
			continue
		}
		if _, owes := st.owed[loop]; !owes {
			f.out[loop] = append(f.out[loop], m)
		}
	}
}

func (f *Feed) sample(m *exchange.Message) {
	if m.Traceparent != "" {
		f.sampled = append(f.sampled, m)
	}
}

// sweepEvery bounds how often all topics are looked at because a filter was left: clients that come
// and go leave many. Until then an unwanted topic costs its memory alone.
const sweepEvery = time.Second

// Advance does what is due by now. It is called at least every second or so, whatever Next says.
func (f *Feed) Advance(now time.Time) {
	f.expire(now, &f.gaps)
	f.expire(now, &f.retries)
	if f.sweep && f.unswept == 0 && now.Sub(f.swept) >= sweepEvery {
		f.sweep, f.swept, f.unswept = false, now, len(f.all)
	}
}

// Sweeping reports whether topics are to be looked at that may have lost their last loop.
func (f *Feed) Sweeping() bool { return f.unswept > 0 }

// Sweep looks at n of these topics. A filter that is left meanwhile has all of them looked at once
// more, after that: nothing begins a sweep anew that has not ended.
func (f *Feed) Sweep(n int) {
	// From the end: what takes the place of a topic that goes was looked at, or came since.
	for f.unswept = min(f.unswept, len(f.all)); n > 0 && f.unswept > 0; n-- {
		f.unswept--
		f.dropUnwanted(f.all[f.unswept])
		f.unswept = min(f.unswept, len(f.all))
	}
}

// Next is when Advance has something to do; false where nothing is due.
func (f *Feed) Next() (time.Time, bool) {
	switch {
	case len(f.gaps) == 0 && len(f.retries) == 0:
		return time.Time{}, false
	case len(f.gaps) == 0:
		return f.retries[0].at, true
	case len(f.retries) == 0 || f.gaps[0].at.Before(f.retries[0].at):
		return f.gaps[0].at, true
	}
	return f.retries[0].at, true
}

// Output since the last Take.
type Output struct {
	// Loops holds a run for each loop, empty where there is none.
	Loops [][]*exchange.Message
	// Reads to do; answered by ReadDone, one each.
	Reads []Read
	// Sampled messages among those handed on.
	Sampled []*exchange.Message
}

// Take returns what has come out since it was called last, and false where that is nothing.
func (f *Feed) Take() (Output, bool) {
	some := len(f.reads) > 0
	for _, run := range f.out {
		some = some || len(run) > 0
	}
	if !some {
		return Output{}, false
	}
	out := Output{Loops: f.out, Reads: f.reads, Sampled: f.sampled}
	f.out, f.reads, f.sampled = make([][]*exchange.Message, len(f.out)), nil, nil
	return out, true
}

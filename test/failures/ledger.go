// Package failures plays faults against a mesh of processes under traffic and tells what each cost:
// what was lost, for how long clients noticed it, and when all was level again. `make failures`
// plays all of them and prints a table; tests play a few.
package failures

import (
	"cmp"
	"encoding/binary"
	"sync"
	"time"
)

// A message's id says who published it, and as which of theirs.
func idOf(producer, n int) uint64 { return uint64(producer)<<32 | uint64(n) }

func producerOf(id uint64) int { return int(id >> 32) }

func payload(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func identify(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// offer is one message that a producer was given, or gave.
type offer struct {
	id        uint64
	durable   bool
	topic     string
	at        time.Time
	answer    time.Time // zero: none yet
	err       error
	seq       uint64
	epoch     uint64
	duplicate bool
	tries     int // of plain calls
}

// book is what one producer writes down.
type book struct {
	mu     sync.Mutex
	offers []*offer
	open   map[*offer]bool // durable, not answered yet
	top    uint64          // the highest seq answered
	live   uint64          // the highest id of an ephemeral message that was accepted
}

func (b *book) offer(producer int, topic string, durable bool) *offer {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &offer{id: idOf(producer, len(b.offers)+1), durable: durable, topic: topic, at: time.Now()}
	b.offers = append(b.offers, o)
	if durable {
		if b.open == nil {
			b.open = map[*offer]bool{}
		}
		b.open[o] = true
	}
	return o
}

// oldest is how long the first durable message without an answer waits.
func (b *book) oldest() (age time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for o := range b.open {
		age = max(age, time.Since(o.at))
	}
	return age
}

// high is the highest seq answered.
func (b *book) high() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.top
}

// highLive is the highest id of an ephemeral message that was accepted.
func (b *book) highLive() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live
}

// tried counts one more call for an offer.
func (b *book) tried(o *offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.tries++
}

// answered notes an offer's end.
func (b *book) answered(o *offer, epoch, seq uint64, duplicate bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, o)
	b.top = max(b.top, seq)
	o.answer, o.epoch, o.seq, o.duplicate, o.err = time.Now(), epoch, seq, duplicate, err
	if !o.durable && err == nil {
		b.live = max(b.live, o.id)
	}
}

// list is a copy of what was offered between two times; a zero end is now.
func (b *book) list(from, to time.Time) (all []offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.offers {
		if !o.at.Before(from) && (to.IsZero() || o.at.Before(to)) {
			all = append(all, *o)
		}
	}
	return all
}

// arrival is one message that a subscriber was given.
type arrival struct {
	id      uint64
	topic   string
	seq     uint64 // 0: ephemeral
	attempt uint32
	at      time.Time
}

// diary is what one subscriber writes down.
type diary struct {
	name    string
	mu      sync.Mutex
	arrived []arrival
	high    map[string]uint64 // seq of a durable topic, id of an ephemeral one
	edge    string            // where it is connected; "": nowhere
	breaks  int
}

func newDiary(name string) *diary { return &diary{name: name, high: map[string]uint64{}} }

func (d *diary) note(a arrival) {
	a.at = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.high[a.topic] = max(d.high[a.topic], cmp.Or(a.seq, a.id))
	d.arrived = append(d.arrived, a)
}

func (d *diary) connected(edge string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if edge == "" && d.edge != "" {
		d.breaks++
	}
	d.edge = edge
}

// reached reports whether every topic has come up to its mark.
func (d *diary) reached(marks map[string]uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for topic, mark := range marks {
		if d.high[topic] < mark {
			return false
		}
	}
	return true
}

func (d *diary) where() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.edge
}

// list is what came from a time on.
func (d *diary) list(from time.Time) (all []arrival) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.arrived {
		if !a.at.Before(from) {
			all = append(all, a)
		}
	}
	return all
}

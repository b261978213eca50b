package linkhealth

import "github.com/pushmesh/pushmesh/services/edge/internal/sys/slab"

// Link is what a connection carries of its round trips. Those of most are calm, all of the last 64,
// and then this is all there is: how many there were, and the last two. Of the others it is the
// number of a record. Zero is a new connection's.
type Link uint32

const (
	// the low bits are the number of a record; else the count, the last but one and the last sample
	recorded Link = 1 << 31
	// the answer to the last heartbeat had to wait behind what the edge had to send
	queued Link = 1 << 30
	number Link = queued - 1
)

// Queued notes whether the answer to this heartbeat waits behind a queue of the edge's, and says
// whether that to the last one did: the client's report of a heartbeat comes with the next one.
func (l *Link) Queued(now bool) (before bool) {
	before = *l&queued != 0
	*l &^= queued
	if now {
		*l |= queued
	}
	return before
}

func calmLink(n int, last, lastButOne quantum) Link {
	return Link(n)<<16 | Link(lastButOne)<<8 | Link(last)
}

func (l Link) count() int          { return int(l >> 16 & 127) }
func (l Link) last() quantum       { return quantum(l) }
func (l Link) lastButOne() quantum { return quantum(l >> 8) }

// record is of a link with a round trip that was not calm among its last 64. Its free ones are
// linked by smoothed.
type record struct {
	window   [windowSize]quantum
	smoothed uint32 // by the kernel, in microseconds, as of the last heartbeat; 0: calm
	n        uint8  // samples of window
	at       uint8  // the next one's place
	spikes   uint8  // in a row, as far as a byte counts
	calms    uint8  // in a row
}

// Book keeps the records of one event loop, and belongs to it.
type Book struct {
	records   slab.Slab[record]
	free      uint32 // number of a free record + 1; 0: none
	taken     int
	unhealthy int
}

// Taken is how many links have a record.
func (b *Book) Taken() int { return b.taken }

// Bytes that records take up, those that are free included.
func (b *Book) Bytes() int { return b.records.Bytes() }

// Unhealthy is how many links are so now.
func (b *Book) Unhealthy() int { return b.unhealthy }

// Verdict on a link.
type Verdict uint8

// Verdicts.
const (
	Unknown   Verdict = iota // this heartbeat told nothing
	Well                     // no spike
	Spike                    // one, but not yet unhealthy
	Turned                   // unhealthy, with this heartbeat
	StillSick                // unhealthy, and was so before
)

// Unhealthy reports whether the link is.
func (v Verdict) Unhealthy() bool { return v >= Turned }

// Judge takes the round trip that a client reports with a heartbeat (0: none) and the smoothed one
// of the kernel (0: unknown), in microseconds. The sample is the greater of what these say: a
// client can't hide what the kernel sees.
func (b *Book) Judge(l *Link, reported, smoothed uint32) (sample uint32, v Verdict) {
	if reported == 0 && smoothed == 0 {
		return 0, Unknown
	}
	if *l&recorded == 0 {
		if sample = max(reported, smoothed); sample <= calm {
			*l = *l&queued | calmLink(min(l.count()+1, windowSize), quantumOf(sample), l.last())
			return sample, Well
		}
		b.open(l)
	}
	r := b.record(*l)
	sample = max(reported, fresh(r.smoothed, smoothed), 1)
	isCalm := max(reported, smoothed) <= calm
	r.smoothed = smoothed
	if sample > limit(r.window[:r.n]) {
		r.calms = 0
		return sample, b.spike(r)
	}
	b.well(r)
	r.add(quantumOf(sample))
	if r.calms++; !isCalm {
		r.calms = 0
	}
	if r.calms == windowSize {
		b.close(l, r)
	}
	return sample, Well
}

func (b *Book) spike(r *record) Verdict {
	if r.spikes < 255 {
		r.spikes++
	}
	switch {
	case r.spikes < inARow:
		return Spike
	case r.spikes == inARow:
		b.unhealthy++
		return Turned
	}
	return StillSick
}

// well ends a row of spikes.
func (b *Book) well(r *record) {
	if r.spikes >= inARow {
		b.unhealthy--
	}
	r.spikes = 0
}

// Forget is called at a connection's end.
func (b *Book) Forget(l *Link) {
	if *l&recorded != 0 {
		r := b.record(*l)
		b.well(r)
		b.give(uint32(*l&number), r)
	}
	*l = 0
}

func (b *Book) record(l Link) *record { return b.records.At(int(l & number)) }

// open begins the record of a link that was calm. Of its window all are below calm, so that it
// hardly matters which they were: the last two stand for them.
func (b *Book) open(l *Link) {
	n := uint32(b.records.Len())
	if b.free != 0 {
		n = b.free - 1
		b.free = b.records.At(int(n)).smoothed
	} else {
		b.records.Take()
	}
	b.taken++
	r := b.records.At(int(n))
	*r = record{}
	for i := range l.count() {
		r.add(l.last())
		if i%2 == 1 {
			r.window[i] = l.lastButOne()
		}
	}
	*l = *l&queued | recorded | Link(n)
}

// close ends the record of a link of whose window all are calm again.
func (b *Book) close(l *Link, r *record) {
	n := uint32(*l & number)
	*l = *l&queued | calmLink(windowSize, r.window[(r.at+windowSize-1)%windowSize], r.window[(r.at+windowSize-2)%windowSize])
	b.give(n, r)
}

func (b *Book) give(n uint32, r *record) {
	*r = record{smoothed: b.free}
	b.free = n + 1
	b.taken--
}

func (r *record) add(q quantum) {
	r.window[r.at] = q
	r.at = (r.at + 1) % windowSize
	r.n = min(r.n+1, windowSize)
}

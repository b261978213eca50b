package upstream

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/history"
)

// nearEnough is how far behind the beginning of a read under way another may begin that waits for
// it: it is mostly answered by the same range.
const nearEnough = 4096

// want is a read that a loop asked for.
type want struct {
	loop     uint16
	topic    string
	epoch    uint64
	from, to uint64
	maxBytes int
}

// catchup is what subscribers that are behind have had read. The mesh's goroutine owns it.
type catchup struct {
	cache   *history.Cache
	flights map[string][]*flight // by topic
}

// flight is a read under way, and who waits for what it brings.
type flight struct {
	want
	later []want
}

// Read answers from the recent messages, from what was read a moment ago, with what is being read,
// else from the log.
func (m *Mesh) Read(loop uint16, topic string, epoch, from, to uint64, maxBytes int) {
	w := want{loop, topic, epoch, max(from, 1), to, maxBytes}
	if !m.ops.TryDo(4*readsWaiting, func() { m.read(w) }) {
		m.stats.RefusedReads.Add(1)
		m.Post(loop, exchange.Range{Topic: topic, From: w.from, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many requests wait at this edge")})
	}
}

func (m *Mesh) read(w want) {
	if r, ok := m.feed.Recent(w.topic, w.epoch, w.from, w.to, w.maxBytes); ok {
		m.hand(w, r)
		return
	}
	if w.to != 0 {
		m.fetch(w, func(r exchange.Range) { m.hand(w, r) })
		return
	}
	c := &m.catchup
	r, next, ok := c.cache.Get(m.now, w.topic, w.epoch, w.from, w.maxBytes)
	if ok {
		m.stats.KeptReads.Add(1)
		m.hand(w, r)
		return
	}
	for _, f := range c.flights[w.topic] {
		if f.epoch == w.epoch && f.from <= w.from && w.from-f.from <= nearEnough {
			f.later = append(f.later, w)
			return
		}
	}
	f := &flight{want: w}
	if next != 0 {
		f.to = next - 1 // the rest is there already
	}
	c.flights[w.topic] = append(c.flights[w.topic], f)
	m.fetch(f.want, func(r exchange.Range) { m.landed(f, r) })
}

// fetch reads from the log; done is called in the mesh's goroutine.
func (m *Mesh) fetch(w want, done func(exchange.Range)) {
	k := history.Key{Topic: w.topic, Epoch: w.epoch, From: w.from, To: w.to, MaxBytes: w.maxBytes}
	m.resumes.Read(k, func(r exchange.Range) { m.judgeRange(r, done) })
}

// landed answers who asked, and has the others look again. Where nothing came that could help them
// they get the same answer.
func (m *Mesh) landed(f *flight, r exchange.Range) {
	c := &m.catchup
	flights := slices.DeleteFunc(c.flights[f.topic], func(o *flight) bool { return o == f })
	if c.flights[f.topic] = flights; len(flights) == 0 {
		delete(c.flights, f.topic)
	}
	c.cache.Put(m.now, r)
	m.hand(f.want, r)
	for _, w := range f.later {
		if r.Err != nil || len(r.Messages) == 0 {
			same := r
			same.From = w.from
			m.hand(w, same)
			continue
		}
		m.read(w)
	}
}

// hand posts a range, after its messages were judged by all content filters there are by now: it
// may have been read before some of them.
func (m *Mesh) hand(w want, r exchange.Range) {
	if m.wheres.Judged(r.Messages) {
		m.post(w, r)
		return
	}
	m.judgeRange(r, func(r exchange.Range) { m.post(w, r) })
}

func (m *Mesh) post(w want, r exchange.Range) {
	m.handOn() // what was delivered by now is known to the answer
	m.Post(w.loop, m.feed.Ahead(r))
}

package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
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

// flight is a read under way, and who waits for what it brings.
type flight struct {
	want
	later []want
}

// repairBytes bounds one read of the feed's own.
const repairBytes = 256 << 10

// reads of logs: resumes are for subscribers that are behind, repairs for the feed. The mesh's
// goroutine owns what was read and is being read; the readers are safe for concurrent use.
type reads struct {
	resumes *history.Reader
	repairs *history.Reader
	cache   *history.Cache
	flights map[string][]*flight // by topic
}

func newReads(cfg *Config, owner func(topic string) string) reads {
	return reads{
		resumes: history.NewReader(cfg.Store, owner, readsWaiting, cfg.Traced),
		repairs: history.NewReader(cfg.Store, owner, readsWaiting, cfg.Traced),
		cache:   history.NewCache(0), flights: map[string][]*flight{},
	}
}

func (r *reads) start(atATime int) {
	r.resumes.Start(atATime)
	r.repairs.Start(repairsAtATime)
}

func (r *reads) stop(ctx context.Context) error {
	return errors.Join(r.resumes.Stop(ctx), r.repairs.Stop(ctx))
}

// board has w wait for a read under way that will mostly answer it; false where there is none.
func (r *reads) board(w want) bool {
	for _, f := range r.flights[w.topic] {
		if f.epoch == w.epoch && f.from <= w.from && w.from-f.from <= nearEnough {
			f.later = append(f.later, w)
			return true
		}
	}
	return false
}

// depart notes that w is being read, up to next where that is not 0: the rest is there already.
func (r *reads) depart(w want, next uint64) *flight {
	f := &flight{want: w}
	if next != 0 {
		f.to = next - 1
	}
	r.flights[w.topic] = append(r.flights[w.topic], f)
	return f
}

// land ends a flight, and keeps what it brought.
func (r *reads) land(now time.Time, f *flight, brought exchange.Range) {
	flights := slices.DeleteFunc(r.flights[f.topic], func(o *flight) bool { return o == f })
	if r.flights[f.topic] = flights; len(flights) == 0 {
		delete(r.flights, f.topic)
	}
	r.cache.Put(now, brought)
}

// resume reads for subscribers. done is called in a goroutine of the reader.
func (r *reads) resume(w want, done func(exchange.Range)) {
	r.resumes.Read(history.Key{Topic: w.topic, Epoch: w.epoch, From: w.from, To: w.to, MaxBytes: w.maxBytes}, done)
}

// repair reads for the feed. done is called in a goroutine of the reader.
func (r *reads) repair(asked feed.Read, done func(exchange.Range)) {
	r.repairs.Read(history.Key{Topic: asked.Topic, Epoch: asked.Epoch, From: asked.From, To: asked.To, MaxBytes: repairBytes}, done)
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
	r, next, ok := m.reads.cache.Get(m.now, w.topic, w.epoch, w.from, w.maxBytes)
	switch {
	case ok:
		m.stats.KeptReads.Add(1)
		m.hand(w, r)
	case !m.reads.board(w):
		f := m.reads.depart(w, next)
		m.fetch(f.want, func(r exchange.Range) { m.landed(f, r) })
	}
}

// fetch reads from the log; done is called in the mesh's goroutine.
func (m *Mesh) fetch(w want, done func(exchange.Range)) {
	m.reads.resume(w, func(r exchange.Range) { m.judging.judgeRange(r, done) })
}

// landed answers who asked, and has the others look again. Where nothing came that could help them
// they get the same answer.
func (m *Mesh) landed(f *flight, r exchange.Range) {
	m.reads.land(m.now, f, r)
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
	if m.judging.isJudged(r.Messages) {
		m.post(w, r)
		return
	}
	m.judging.judgeRange(r, func(r exchange.Range) { m.post(w, r) })
}

func (m *Mesh) post(w want, r exchange.Range) {
	m.handOn() // what was delivered by now is known to the answer
	m.Post(w.loop, m.feed.Ahead(r))
}

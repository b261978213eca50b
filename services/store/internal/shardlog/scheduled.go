package shardlog

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// What a scheduled message became, appended or cancelled, is remembered under a key of its own: so
// it is appended once, and who cancels it late learns that it is too late.
const (
	// scheduleWindow is how long that is.
	scheduleWindow = 24 * time.Hour
	// scheduleRereadWithin is more than the time between a message's being read from the schedule
	// and its append. When it was read it was neither appended nor cancelled, and since then only
	// this lane could do that: further back no key need be looked for.
	scheduleRereadWithin = 2 * time.Minute
)

// ScheduleKey stands for what became of a scheduled message: of no topic, so it is no other key.
func ScheduleKey(messageID [16]byte) backend.KeyHash { return hashKey("", string(messageID[:])) }

// keyOf is the key by which an item is recognised; zero: none. An ordered producer's scheduled
// message, which leaves no record in the log by which a repetition could be answered, gets one that
// is made of its number.
func keyOf(item *meshv1.AppendItem) backend.KeyHash {
	switch {
	case item.GetDue() != 0:
		return ScheduleKey([16]byte(item.GetMessageId()))
	case item.GetDedupeKey() != "":
		return hashKey(item.GetTopic(), item.GetDedupeKey())
	case item.GetDeliverAt() != 0 && item.GetProducerSeq() != 0:
		return hashKey(item.GetTopic(), "\x00"+string(binary.BigEndian.AppendUint64(slices.Clip(item.GetProducerId()), item.GetProducerSeq())))
	}
	return backend.KeyHash{}
}

// schedule keeps a message for later.
func (p *planner) schedule(i int, e *entry) {
	s := backend.Scheduled{
		ScheduledID: backend.ScheduledID{Due: e.item.GetDeliverAt(), MessageID: [16]byte(e.item.GetMessageId())},
		Shard:       e.shard, Topic: e.item.GetTopic(), PublishedAt: e.item.GetPublishedAt(), TTL: e.item.GetTtlUs(),
		Traceparent: e.item.GetTraceparent(), Body: e.item.GetBody(),
	}
	p.commit(e.shard)
	p.batch.Scheduled = append(p.batch.Scheduled, s)
	p.results[i] = &meshv1.AppendResult{
		Ref: e.item.GetRef(), Code: wirev1.Code_CODE_OK, MessageId: e.item.GetMessageId(), PublishedAt: s.PublishedAt, Scheduled: true,
	}
	p.waits[i] = true
	p.use(i, e, e.window(p.policies.For(s.Topic)))
}

// fired takes a scheduled message that is appended out of the schedule, and a dead letter that is
// replayed from the others; one that is copied it marks.
func (p *planner) fired(e *entry) {
	if id := e.item.GetDeadLetter(); id != 0 {
		p.batch.Letters = append(p.batch.Letters, id)
	}
	if id := e.item.GetCopiedLetter(); id != 0 {
		p.batch.Copied = append(p.batch.Copied, id)
	}
	if due := e.item.GetDue(); due != 0 {
		p.batch.Removed = append(p.batch.Removed, backend.ScheduledID{Due: due, MessageID: [16]byte(e.item.GetMessageId())})
	}
}

// cancel takes a message out of the schedule that will not be appended any more: its key is used,
// without a seq.
func (p *planner) cancel(i int, e *entry) {
	p.commit(e.shard)
	p.batch.Removed = append(p.batch.Removed, *e.cancels)
	p.results[i] = &meshv1.AppendResult{Ref: e.item.GetRef(), Code: wirev1.Code_CODE_OK, MessageId: e.item.GetMessageId(), Scheduled: true}
	p.waits[i] = true
	p.use(i, e, scheduleWindow)
}

// reached is the seq of a producer's position: where its last message got none (it waits for its
// time), the one before it.
func (s *state) reached(key producerKey, seq uint64) uint64 {
	if have := s.positions.by[key]; seq == 0 && have != nil {
		return have.seq
	}
	return seq
}

// Cancel withdraws a scheduled message that was found in the database. The answer's seq is where it
// was appended; 0: it was cancelled, by this call or an earlier one. Whatever the code, an error
// says that nothing is known.
func (g *Log) Cancel(ctx context.Context, s *backend.Scheduled) (*meshv1.AppendResult, error) {
	e := &entry{
		item: &meshv1.AppendItem{Topic: s.Topic, MessageId: s.MessageID[:]}, shard: topic.Shard(s.Topic),
		key: ScheduleKey(s.MessageID), at: g.cfg.Now(), cancels: &s.ScheduledID,
	}
	answer := make(once, 1)
	e.sink = answer
	g.lane(e.shard).submit([]*entry{e})
	select {
	case r := <-answer:
		if r.GetCode() != wirev1.Code_CODE_OK {
			return nil, code.Retry(r.GetCode(), time.Duration(r.GetRetryAfterMs())*time.Millisecond, r.GetError())
		}
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// once is a sink for one result.
type once chan *meshv1.AppendResult

func (o once) Results(rs []*meshv1.AppendResult) { o <- rs[0] }

// Ownerships writes a number for each shard into dst, which has topic.Shards elements: 0 if the
// shard is not owned, else a number that differs each time the shard is taken.
func (g *Log) Ownerships(dst []uint64) {
	clear(dst)
	for _, l := range g.lanes {
		l.state.mu.RLock()
		for n, sh := range l.state.shards {
			dst[n] = sh.ownership
		}
		l.state.mu.RUnlock()
	}
}

// Ownership is a shard's number among those of Claims.
func (g *Log) Ownership(shard int) uint64 {
	l := g.lane(shard)
	l.state.mu.RLock()
	defer l.state.mu.RUnlock()
	if sh := l.state.shards[shard]; sh != nil {
		return sh.ownership
	}
	return 0
}

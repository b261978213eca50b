package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const (
	// requestTimeout is when a router that does not answer is given up, and another one asked.
	requestTimeout = 5 * time.Second
	// Pauses before rows are sent again.
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
	// singlyAfter that many attempts, rows of one topic are sent one by one.
	singlyAfter = 3
	// patience is how long a shard may be away before its rows are parked.
	patience = time.Second
)

// asker has routers publish rows, one request at a time.
type asker struct {
	request func(ctx context.Context, subject string, data []byte) ([]byte, error)
	metrics *metrics
	log     *slog.Logger
	order   order
}

// sender has pieces of the outbox published, each before the next, so that the rows of a topic keep
// their order.
type sender struct {
	asker
	outbox  backend.Outbox
	waiting *waiting
	keeps   func(now time.Time) bool
}

// errLeft ends a batch that this store can't go on with: who gets the right next does.
var errLeft = errors.New("this store stops reading the transactional outbox, since it reaches no router: another store may")

// row on its way.
type row struct {
	backend.OutboxRow
	repeated bool
	refused  wirev1.Code // by the last answer
}

// send is done when every row is published, refused for good, or parked: those of shards that are
// away. As long as a router asks to come back for another reason, it does, and where no more can be
// parked: rows are never given up, and none overtakes another one of its topic. It ends early where
// another store shall read.
func (s *sender) send(ctx context.Context, ids []int64, repeated bool) (refused []backend.OutboxRefusal, err error) {
	found, err := s.outbox.Rows(ctx, ids)
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(found))
	for i, r := range found {
		rows[i] = row{OutboxRow: r, repeated: repeated}
	}
	pause, absent := firstPause, absence{}
	for attempt := 1; len(rows) > 0; attempt++ {
		ready, behind, err := s.waiting.park(ctx, rows, s.waiting.holds)
		if err != nil {
			return nil, err
		}
		now, later := ready, []row(nil)
		if attempt > singlyAfter {
			now, later = singles(ready)
		}
		again, no, why := s.attempt(ctx, now)
		refused = append(refused, no...)
		gone := absent.since(time.Now(), again, len(s.waiting.shards) > 0)
		left, full, err := s.waiting.park(ctx, append(again, later...), gone)
		if err != nil {
			return nil, err
		}
		rows = inOrder(slices.Concat(left, full, behind))
		s.waiting.stand(len(full)+len(behind) > 0)
		if len(again)+len(behind) == 0 || len(rows) == 0 {
			continue
		}
		if attempt > 1 {
			s.log.Warn("messages that transactions published wait: no router accepts them", "messages", len(rows), "error", why)
		}
		if err := s.pause(ctx, pause); err != nil {
			return nil, err
		}
		if !s.keeps(time.Now()) {
			return nil, errLeft
		}
		pause = min(2*pause, maxPause)
		// Reading is the proof that this store still has the right.
		if _, err := s.outbox.Rows(ctx, []int64{rows[0].ID}); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// absence is since when shards have been refused as away.
type absence map[int]time.Time

// since takes the rows of an attempt that are to be sent again and returns which rows shall not
// hold the others up any longer: those of shards that have been away for patience or, once others
// are known to be away, at all.
func (a absence) since(now time.Time, again []row, others bool) func(*row) bool {
	out := map[int]bool{}
	for _, r := range again {
		if !away(r.refused) {
			continue
		}
		shard := topic.Shard(r.Topic)
		if a[shard].IsZero() {
			a[shard] = now
		}
		out[shard] = out[shard] || others && r.refused == wirev1.Code_CODE_UNAVAILABLE || now.Sub(a[shard]) >= patience
	}
	return func(r *row) bool { return out[topic.Shard(r.Topic)] }
}

// away reports whether a refusal may mean that a shard's owner or database is away, or that the
// shard moves.
func away(c wirev1.Code) bool {
	switch c {
	case wirev1.Code_CODE_UNAVAILABLE, wirev1.Code_CODE_CONFLICT, wirev1.Code_CODE_EPOCH_CHANGED, wirev1.Code_CODE_INTERNAL:
		return true
	}
	return false
}

// pause tends what is parked meanwhile.
func (s *sender) pause(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := s.waiting.tend(ctx); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		if err := wait(ctx, min(left, pollEvery)); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attempt sends rows once and says which to send again.
func (s *asker) attempt(ctx context.Context, rows []row) (again []row, refused []backend.OutboxRefusal, why error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
	reply, err := s.ask(ctx, rows)
	if err != nil {
		s.order.begin()
		for _, r := range rows {
			r.repeated, r.refused = r.repeated || !errors.Is(err, bus.ErrNobody), wirev1.Code_CODE_OK
			again = append(again, r)
		}
		return again, nil, err
	}
	for i, res := range reply.GetResults() {
		s.metrics.answered(res.GetCode())
		switch r := rows[i]; {
		case res.GetCode() == wirev1.Code_CODE_OK:
		case res.GetCode() == wirev1.Code_CODE_EXPIRED: // counted
		case passing(res.GetCode()):
			r.repeated, r.refused = r.repeated || res.GetCode() == wirev1.Code_CODE_INTERNAL, res.GetCode()
			again, why = append(again, r), code.New(res.GetCode(), res.GetError())
		default:
			refused = append(refused, backend.OutboxRefusal{ID: r.ID, Code: code.Name(res.GetCode()), Error: res.GetError()})
			s.log.Error("a message that a transaction published was refused", "id", r.ID, "topic", r.Topic, "code", code.Name(res.GetCode()), "error", res.GetError())
		}
	}
	if len(again)+len(refused) > 0 {
		s.order.begin()
	}
	return again, refused, why
}

// passing reports whether a refusal is one that passes.
func passing(c wirev1.Code) bool {
	switch c {
	case wirev1.Code_CODE_RATE_LIMITED, wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_DRAINING, wirev1.Code_CODE_UNAVAILABLE,
		wirev1.Code_CODE_INTERNAL, wirev1.Code_CODE_OUT_OF_ORDER, wirev1.Code_CODE_CONFLICT, wirev1.Code_CODE_EPOCH_CHANGED:
		return true
	}
	return false
}

func (s *asker) ask(ctx context.Context, rows []row) (*meshv1.ClientPublishReply, error) {
	data, err := proto.Marshal(s.order.encode(rows))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := s.request(ctx, bus.OutboxPublish, data)
	if err != nil {
		return nil, err
	}
	reply := &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal(answer, reply); err != nil {
		return nil, err
	}
	if len(reply.GetResults()) != len(rows) {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "a router answered for a different number of messages")
	}
	return reply, nil
}

func random() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it never fails
	return id
}

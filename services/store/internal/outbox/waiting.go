package outbox

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// shardsAtOnce is how many shards one request takes waiting rows of, where these are known to be
// taken again.
const shardsAtOnce = 16

// waiting is what was parked: rows of shards whose owner or database is away. While a shard has
// any, its later rows are parked behind them. Shards that refuse are probed with their first row
// each, those that take rows again send many; each kind has a request under way at a time, beside
// the reader's goroutine. All else here is that goroutine's.
type waiting struct {
	outbox      backend.Outbox
	metrics     *metrics
	log         *slog.Logger
	group       *lifecycle.Group
	lanes       [2]lane // those that probe, and those that flow
	shards      map[int]*place
	rows, bytes int
	mostRows    int
	mostBytes   int
	full        bool
	// doubtful rows may have been published.
	doubtful map[int64]bool
}

// place is what waits of one shard.
type place struct {
	rows    int
	flowing bool
	busy    bool // a request holds some
	next    time.Time
	pause   time.Duration
}

// lane is who sends a request, and the answer to the one under way.
type lane struct {
	asker
	sent    []row // nil: none is under way
	answers chan answer
}

type answer struct {
	again   []row
	refused []backend.OutboxRefusal
}

// open finds what earlier holders of the right have parked.
func (w *waiting) open(ctx context.Context, ask asker) error {
	found, err := w.outbox.Waiting(ctx)
	if err != nil {
		return err
	}
	w.group, w.shards, w.doubtful = lifecycle.NewGroup(context.Background()), map[int]*place{}, map[int64]bool{}
	for i := range w.lanes {
		w.lanes[i] = lane{asker: ask, answers: make(chan answer, 1)}
	}
	for _, r := range found {
		w.doubtful[r.ID] = true
	}
	w.count(found)
	return nil
}

// close ends requests under way. What becomes of them is not known to the next holder.
func (w *waiting) close() {
	_ = w.group.Stop(context.Background()) // requests end with their context
	w.metrics.waiting(0, 0, false)
}

func (w *waiting) count(added []backend.OutboxWaiting) {
	now := time.Now()
	for _, r := range added {
		p := w.shards[r.Shard]
		if p == nil {
			p = &place{next: now.Add(firstPause), pause: firstPause}
			w.shards[r.Shard] = p
		}
		p.rows++
		w.rows++
		w.bytes += r.Size
	}
	w.metrics.waiting(w.rows, w.bytes, w.full)
}

func (w *waiting) holds(r *row) bool { return w.shards[topic.Shard(r.Topic)] != nil }

// park takes those rows that which picks, all or none of them; left are the others. Where there is
// no room for them they are behind.
func (w *waiting) park(ctx context.Context, rows []row, which func(*row) bool) (left, behind []row, err error) {
	size := 0
	for _, r := range rows {
		if !which(&r) {
			left = append(left, r)
			continue
		}
		behind = append(behind, r)
		size += len(r.Payload) + 512
	}
	if len(behind) == 0 {
		return left, nil, nil
	}
	if w.rows+len(behind) > w.mostRows || w.bytes+size > w.mostBytes {
		return left, behind, nil
	}
	ids, shards := make([]int64, len(behind)), make([]int, len(behind))
	for i, r := range behind {
		ids[i], shards[i] = r.ID, topic.Shard(r.Topic)
		if r.repeated {
			w.doubtful[r.ID] = true
		}
	}
	added, err := w.outbox.Park(ctx, ids, shards)
	if err == nil {
		w.count(added)
	}
	return left, nil, err
}

// stand notes whether rows had to be left where they are for want of room, so that nothing behind
// them is read.
func (w *waiting) stand(full bool) {
	if full && !w.full {
		w.log.Warn("too many messages wait for shards that are away: nothing that transactions publish is sent until there is room", "messages", w.rows, "bytes", w.bytes,
			"max_messages", w.mostRows, "max_bytes", w.mostBytes)
	}
	w.full = full
	w.metrics.waiting(w.rows, w.bytes, w.full)
}

// tend takes answers in and begins what is due.
func (w *waiting) tend(ctx context.Context) error {
	for i := range w.lanes {
		l := &w.lanes[i]
		select {
		case a := <-l.answers:
			if err := w.finish(ctx, l.sent, a); err != nil {
				return err
			}
			l.sent = nil
		default:
		}
		if l.sent != nil {
			continue
		}
		if err := w.begin(ctx, l, i == 1); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiting) begin(ctx context.Context, l *lane, flowing bool) error {
	shards, each := w.due(time.Now(), flowing)
	if len(shards) == 0 {
		return nil
	}
	found, err := w.outbox.WaitingRows(ctx, shards, each, pieceRows, pieceBytes)
	if err != nil {
		return err
	}
	for _, r := range found {
		w.shards[topic.Shard(r.Topic)].busy = true
		l.sent = append(l.sent, row{OutboxRow: r, repeated: w.doubtful[r.ID]})
	}
	rows := l.sent
	w.group.Go("outbox waiting", func(ctx context.Context) {
		var a answer
		a.again, a.refused, _ = l.attempt(ctx, slices.Clone(rows))
		l.answers <- a
	})
	return nil
}

// due are the shards to ask for, those that have waited longest first, and how many rows of each.
func (w *waiting) due(now time.Time, flowing bool) (shards []int, each int) {
	for s, p := range w.shards {
		if p.flowing == flowing && !p.busy && !p.next.After(now) {
			shards = append(shards, s)
		}
	}
	slices.SortFunc(shards, func(a, b int) int { return w.shards[a].next.Compare(w.shards[b].next) })
	if !flowing {
		return shards[:min(len(shards), pieceRows)], 1
	}
	shards = shards[:min(len(shards), shardsAtOnce)]
	return shards, pieceRows / max(len(shards), 1)
}

// finish takes the results of rows that were sent.
func (w *waiting) finish(ctx context.Context, sent []row, a answer) error {
	stays, failed := map[int64]bool{}, map[int]bool{}
	for _, r := range a.again {
		stays[r.ID], failed[topic.Shard(r.Topic)] = true, true
		if r.repeated {
			w.doubtful[r.ID] = true
		}
	}
	var ids []int64
	var shards []int
	now := time.Now()
	for _, r := range sent {
		shard := topic.Shard(r.Topic)
		w.shards[shard].answered(now, failed[shard])
		if !stays[r.ID] {
			ids, shards = append(ids, r.ID), append(shards, shard)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	gone, err := w.outbox.Unpark(ctx, ids, shards, a.refused)
	if err != nil {
		return err
	}
	for _, r := range gone {
		delete(w.doubtful, r.ID)
		w.rows--
		w.bytes -= r.Size
		if p := w.shards[r.Shard]; p.rows > 1 {
			p.rows--
		} else {
			delete(w.shards, r.Shard)
		}
	}
	w.metrics.waiting(w.rows, w.bytes, w.full)
	return nil
}

// answered is called for each row, after the last of which only the first call counts.
func (p *place) answered(now time.Time, failed bool) {
	if !p.busy {
		return
	}
	if p.busy, p.flowing = false, !failed; failed {
		p.next, p.pause = now.Add(p.pause), min(2*p.pause, maxPause)
		return
	}
	p.next, p.pause = now, firstPause
}

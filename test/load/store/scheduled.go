package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// scheduledCount messages fall due within one second.
	scheduledCount = 10_000
	// scheduledSoon is the promise, in ms; the shards of a store that was killed wait for its
	// successor.
	scheduledSoon = 100
	// scheduledAhead is how long before they are published.
	scheduledAhead = 8 * time.Second
)

// scheduled has 10,000 messages fall due in one second, with two stores: both live, and one killed
// in that second.
func (b *bench) scheduled(ctx context.Context) error {
	for _, kill := range []bool{false, true} {
		if err := b.scheduledRow(ctx, kill); err != nil {
			return fmt.Errorf("kill %v: %w", kill, err)
		}
	}
	return nil
}

func (b *bench) scheduledRow(ctx context.Context, kill bool) (err error) {
	defer try.Catch(&err)
	prog := b.Programs
	prog.TwoStores = true
	m := try.Get(b.meshOf(ctx, prog, 1))
	defer func() { err = errors.Join(err, m.end()) }()
	all := names("room", topics)
	subs := try.Get(subscribeAll(ctx, m, all))
	due := time.Now().Add(scheduledAhead).Truncate(time.Second)
	try.Do(scheduleAll(ctx, m.Router.Addr, all, due))
	if left := time.Until(due); left < time.Second {
		return fmt.Errorf("scheduling took so long that %s were left", left)
	}
	w := try.Get(b.UsingMesh(m.Mesh))
	if kill {
		time.Sleep(time.Until(due.Add(time.Second / 2)))
		m.Second.Kill()
	}
	try.Do(await(ctx, subs, scheduledCount))
	used := try.Get(w.Each(scheduledCount))
	try.Get(arrivals(ctx, subs, scheduledCount))
	// how late, in shards of the store that lives and of the other one
	var kept, lost []time.Duration
	for i, s := range subs {
		for _, a := range s.came {
			late := a.at.Sub(a.stamp)
			if topic.Shard(all[i]) < topic.Shards/2 || !kill {
				kept = append(kept, late)
			} else {
				lost = append(lost, late)
			}
		}
	}
	slices.Sort(kept)
	slices.Sort(lost)
	said := fmt.Sprintf("%d: p50 %s, p99.9 %s, max %s", len(kept), ms(kept, .5), ms(kept, .999), ms(kept, 1))
	name := "10,000 scheduled in one second, two stores: late, p99"
	if kill {
		name = "the same with a store killed in that second, shards of the other one: late, p99"
		said += fmt.Sprintf("; shards of the one killed, %d: p50 %s, p99 %s, max %s", len(lost), ms(lost, .5), ms(lost, .99), ms(lost, 1))
	} else {
		said += "; of one store: " + used
	}
	b.Add(table.AtMost(name, table.Quantile(kept, .99), "ms", scheduledSoon, said))
	return nil
}

// scheduleAll publishes messages that are due within the second after a time.
func scheduleAll(ctx context.Context, router string, all []string, due time.Time) (err error) {
	defer try.Catch(&err)
	conn := try.Get(suite.Dial(router))
	defer func() { _ = conn.Close() }()
	stream := try.Get(pushmeshv1.NewPublishServiceClient(conn).PublishStream(ctx))
	const frame = 1000
	for first := 0; first < scheduledCount; first += frame {
		req := &pushmeshv1.PublishStreamRequest{}
		for n := first; n < first+frame; n++ {
			when := due.Add(time.Duration(n) * time.Second / scheduledCount)
			body := make([]byte, payload)
			publisher.Stamp(body, when)
			req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(n), Message: &pushmeshv1.PublishRequest{
				Topic: all[n%len(all)], Payload: body, DeliverAt: timestamppb.New(when),
			}})
		}
		try.Do(stream.Send(req))
		for answered := 0; answered < frame; {
			resp := try.Get(stream.Recv())
			for _, r := range resp.GetResults() {
				if r.GetCode() != wirev1.Code_CODE_OK || !r.GetResponse().GetScheduled() {
					return fmt.Errorf("not scheduled: %v", r)
				}
				answered++
			}
		}
	}
	return nil
}

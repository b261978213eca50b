package edge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// wideFilters of one client match wideTopics durable topics each, as many as one may.
const (
	wideFilters = 10
	wideTopics  = 1000
)

// wideStalls measures what a client with 10,000 topics means for a connection that only pings: its
// wildcards begin, a session with as many begins, is resumed, and ends.
func (b *bench) wideStalls(ctx context.Context, m *local.Mesh) (err error) {
	defer try.Catch(&err)
	try.Do(fillTopics(ctx, m.Router.Addr))
	steps := []string{"10 wildcards with 1,000 topics each begin", "a session with 10,000 topics begins", "it is resumed", "its filters end"}
	all, spans := make([]pings, len(steps)), make([][]float64, len(steps))
	for round := range b.Rounds {
		w := wide{addr: m.Edges[0].Addr, session: fmt.Sprintf("wide-%d", round)}
		for i, step := range []func() error{w.plain, w.resume, w.resume, w.leave} {
			p, took, err := w.probe(step)
			if err != nil {
				return fmt.Errorf("%s: %w", steps[i], err)
			}
			all[i].took, all[i].late = append(all[i].took, p.took...), max(all[i].late, p.late)
			spans[i] = append(spans[i], took)
		}
		try.Do(w.c.close())
	}
	for i, what := range steps {
		b.pingRows(what, all[i], fmt.Sprintf(", it took %.3g ms", table.Median(spans[i])))
	}
	return nil
}

// fillTopics has a message in each of the topics.
func fillTopics(ctx context.Context, router string) (err error) {
	defer try.Catch(&err)
	p := try.Get(publisher.New(ctx, router, "", publisher.StampSize))
	for f := range wideFilters {
		var topics []string
		for i := range wideTopics {
			topics = append(topics, fmt.Sprintf("room/wide%d/%d", f, i))
		}
		err = errors.Join(err, p.PublishTo(topics, time.Now()), p.Wait(ctx))
	}
	return errors.Join(err, p.Close())
}

// wide is one client after the other with very many topics.
type wide struct {
	addr, session string
	c             *client
}

// probe pings while a step is under way, and for a while before and after, for the step may be over
// after a few; the slowest was in it, if in any. It says how long the step took, in ms.
func (w *wide) probe(step func() error) (p pings, took float64, err error) {
	p, err = probe(w.addr, func() error {
		const pause = 100 * time.Millisecond
		time.Sleep(pause)
		began := time.Now()
		err := step()
		took = float64(time.Since(began)) / float64(time.Millisecond)
		time.Sleep(pause)
		return err
	})
	return p, took, err
}

func (w *wide) plain() error { return w.again("", &wirev1.Subscribe{}) }

func (w *wide) resume() error {
	return w.again(w.session, &wirev1.Subscribe{Ack: true, Start: wirev1.Start_START_SESSION})
}

// again connects anew and subscribes to everything.
func (w *wide) again(session string, m *wirev1.Subscribe) (err error) {
	defer try.Catch(&err)
	if w.c != nil {
		try.Do(w.c.close())
	}
	w.c = try.Get(dialAs(w.addr, &wirev1.Hello{Version: wire.Version, HeartbeatMs: swarm.Never, ClientId: "wide", Session: session}))
	var all []byte
	for f := range wideFilters {
		m.Id, m.Filter = uint32(f+1), fmt.Sprintf("room/wide%d/+", f)
		all = append(all, frame(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, m)...)
	}
	return errors.Join(w.c.send(all), w.c.until(wirev1.FrameType_FRAME_TYPE_SUBSCRIBED, wideFilters))
}

func (w *wide) leave() error {
	var all []byte
	for f := range wideFilters {
		all = append(all, frame(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: uint32(f + 1)})...)
	}
	return errors.Join(w.c.send(all), w.c.until(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBED, wideFilters))
}

package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// load is a publisher and subscribers, processes of their own, around the servers that are
// measured.
type load struct {
	publish   job
	subscribe []job
	servers   []suite.Consumer
	profiled  []*local.Process
	// copies of each message that arrive.
	copies int64
	name   string        // of profiles
	warm   time.Duration // of the same that does not count; 0: a second
}

// outcome of a load.
type outcome struct {
	tally
	published int64
	took      time.Duration // from the first message's start to the last one's arrival
	used      string        // CPU of each for a message, in µs
	cpu       map[string]float64
}

func (o *outcome) rate() float64 { return float64(o.published) / o.took.Seconds() }

// patience with messages that are under way when everything is published.
const patience = 20 * time.Second

// do lets a load run, after some of the same that does not count, and waits until everything has
// arrived.
func (b *bench) do(ctx context.Context, l *load) (o *outcome, err error) {
	defer try.Catch(&err)
	var subs []*suite.Worker
	defer func() {
		for _, w := range subs {
			err = errors.Join(err, w.Dismiss())
		}
	}()
	for i, j := range l.subscribe {
		w := try.Get(b.Hire(fmt.Sprintf("%s-subscribers-%d", l.name, i+1), j.Kind, j, nil))
		subs = append(subs, w)
	}
	warm := l.publish
	warm.Span = cmp.Or(l.warm, time.Second)
	try.Get(b.once(ctx, l, warm, subs))
	saved := b.Profiles(ctx, l.name, int(b.Span.Seconds())-1, l.profiled...)
	o, err = b.once(ctx, l, l.publish, subs)
	return o, errors.Join(err, saved())
}

func (b *bench) once(ctx context.Context, l *load, j job, subs []*suite.Worker) (o *outcome, err error) {
	defer try.Catch(&err)
	pub := try.Get(b.Hire(l.name+"-publisher", j.Kind, j, nil))
	defer func() { err = errors.Join(err, pub.Dismiss()) }()
	hired := suite.Consumer{Name: "subscribers"}
	for _, w := range subs {
		try.Get(ask(w, "clear"))
		hired.PIDs = append(hired.PIDs, w.PID())
	}
	all := append([]suite.Consumer{suite.Of("publisher", pub.Process)}, l.servers...)
	usage := try.Get(suite.Using(append(all, hired)...))
	began := time.Now()
	sent := try.Get(ask(pub, "go"))
	o = &outcome{published: sent.N}
	for o.N != sent.N*l.copies {
		o.tally = tally{Refused: sent.Refused}
		for _, w := range subs {
			t := try.Get(ask(w, "report"))
			o.add(t)
		}
		if late := time.Since(began) > j.Span+patience; late || ctx.Err() != nil || o.N > sent.N*l.copies {
			return nil, fmt.Errorf("%d of %d messages arrived", o.N, sent.N*l.copies)
		}
	}
	o.took = o.Last.Sub(began)
	o.cpu = try.Get(usage.By(o.published))
	o.used, err = usage.Each(o.published)
	return o, err
}

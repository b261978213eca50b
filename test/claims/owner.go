package claims

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Crowd is many owners who do what they may, and what they may not, with some resources.
type Crowd struct {
	APIs []pushmeshv1.ClaimServiceClient // routers
	// Prefix of the resources' names; Desks is how many are in use at a time, Owners how many share
	// each.
	Prefix        string
	Desks, Owners int
	// Pause is the mean time between two operations of an owner. Absence is the longest for which
	// one does nothing now and then, so that what it has may end meanwhile; 0: never.
	Pause, Absence time.Duration
	// Watches: who waits may do so at a stream.
	Watches bool
	Seed    uint64
	History *History
}

// Run has everybody do something until ctx ends, and returns when all have their last answers.
func (c *Crowd) Run(ctx context.Context) {
	var running sync.WaitGroup
	for i := range c.Desks {
		d := &desk{prefix: fmt.Sprintf("%s/%d", c.Prefix, i)}
		for j := range c.Owners {
			o := &owner{
				Crowd: c, desk: d, name: fmt.Sprintf("owner-%d", j),
				// #nosec G404 -- repeatable
				rand: rand.New(rand.NewPCG(c.Seed, uint64(i*c.Owners+j))),
			}
			running.Go(func() { o.run(ctx) })
		}
	}
	running.Wait()
}

// owner does one operation after the other. One goroutine has it.
type owner struct {
	*Crowd
	desk *desk
	name string
	rand *rand.Rand

	resource string
	place    wirev1.ClaimState_State // GRANTED, QUEUED; FREE: none
	token    uint64
	unsure   bool // the last outcome is not known: it looks first
}

func (o *owner) run(ctx context.Context) {
	for ctx.Err() == nil {
		if r := o.desk.resource(); r != o.resource {
			o.resource, o.place, o.token, o.unsure = r, wirev1.ClaimState_STATE_FREE, 0, false
		}
		if o.Watches && o.place == wirev1.ClaimState_STATE_QUEUED && o.rand.IntN(2) == 0 {
			o.watch(ctx)
		} else {
			o.do(ctx, o.next())
		}
		pause := time.Duration(o.rand.ExpFloat64() * float64(o.Pause))
		if o.Absence > 0 && o.rand.IntN(20) == 0 {
			pause = time.Duration(o.rand.Int64N(int64(o.Absence)))
		}
		if o.unsure {
			pause += 100 * time.Millisecond // there is no use in asking faster: somebody died
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// api is any router.
func (o *owner) api() pushmeshv1.ClaimServiceClient { return o.APIs[o.rand.IntN(len(o.APIs))] }

func (o *owner) do(ctx context.Context, op *Op) {
	op.Owner = o.name
	out := call(context.WithoutCancel(ctx), o.api(), o.History, o.resource, op)
	o.desk.did(o.resource, op, out)
	o.unsure = out == unknown
	if out != done {
		return
	}
	switch a := op.Answer; {
	case a.State == wirev1.ClaimState_STATE_GRANTED && !a.NotHeld:
		o.place, o.token = a.State, a.Token
	case a.State == wirev1.ClaimState_STATE_QUEUED:
		o.place = a.State
	case op.Token == 0 || op.Token == o.token: // not an attempt with what is void anyway
		o.place, o.token = wirev1.ClaimState_STATE_FREE, 0
	}
}

// next is what the owner does now.
func (o *owner) next() *Op {
	if o.unsure {
		return &Op{Kind: Check}
	}
	if g, ok := o.desk.stale(o.rand.IntN); ok && o.rand.IntN(10) == 0 {
		// of another, or its own from before, or by chance the present one
		if o.rand.IntN(2) == 0 {
			return &Op{Kind: Renew, Token: g.token}
		}
		return &Op{Kind: Release, Token: g.token}
	}
	// #nosec G115 -- 0 to 2
	acquire := &Op{Kind: Acquire, Priority: uint32(max(0, o.rand.IntN(6)-3)), NoWait: o.place == wirev1.ClaimState_STATE_FREE && o.rand.IntN(6) == 0}
	switch n := o.rand.IntN(100); o.place {
	case wirev1.ClaimState_STATE_GRANTED:
		switch {
		case n < 50:
			return &Op{Kind: Release, Token: o.token}
		case n < 60:
			if next := fmt.Sprintf("owner-%d", o.rand.IntN(o.Owners)); next != o.name {
				return &Op{Kind: Release, Token: o.token, Successor: next}
			}
		case n < 85:
			return &Op{Kind: Renew, Token: o.token}
		case n < 90:
			return &Op{Kind: Leave}
		}
		return acquire
	case wirev1.ClaimState_STATE_QUEUED:
		switch {
		case n < 70:
			return &Op{Kind: Check}
		case n < 80:
			return &Op{Kind: Leave}
		}
		return acquire
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED, wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
	}
	switch n := o.rand.IntN(100); {
	case n < 85:
		return acquire
	case n < 95:
		return &Op{Kind: Check}
	}
	return &Op{Kind: Leave}
}

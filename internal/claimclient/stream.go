package claimclient

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Pauses between two streams: the first one, doubled up to the last while they come to nothing.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

type claimStream = grpc.BidiStreamingClient[meshv1.StoreServiceClaimsRequest, meshv1.StoreServiceClaimsResponse]

// run keeps a stream open until ctx ends or the link is retired.
func (l *link) run(ctx context.Context) {
	defer l.close()
	pause := firstPause
	for renewed := false; ; {
		opened, heard := l.stream(ctx, renewed)
		renewed = renewed || opened
		if ctx.Err() != nil || l.over() {
			return
		}
		if !opened {
			l.fail("the store can't be reached", true)
		}
		if heard {
			pause = firstPause
		}
		wait := time.NewTimer(pause/2 + rand.N(pause))
		pause = min(2*pause, lastPause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

// stream lives as long as one stream does: it was opened as far as this side knows, and the store
// has said anything. renewed: there was one before.
func (l *link) stream(ctx context.Context, renewed bool) (opened, heard bool) {
	stub, err := l.client.cfg.Stores.To(l.addr)
	if err != nil {
		return false, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := stub.Claims(ctx)
	if err != nil {
		l.client.cfg.Log.Debug("opening a claims stream to a store failed", "store", l.addr, "error", err)
		return false, false
	}
	hello := &meshv1.StoreServiceClaimsRequest{Node: l.client.cfg.Node, Incarnation: l.client.cfg.Incarnation}
	if s.Send(hello) != nil {
		_, err = s.Recv()
		l.client.cfg.Log.Debug("starting a claims stream to a store failed", "store", l.addr, "error", err)
		return false, false
	}
	l.setOpen(true)
	if renewed {
		l.client.renewed(l)
	}
	read := make(chan bool, 1)
	go func() {
		defer cancel()
		read <- l.read(s)
	}()
	l.write(ctx, s)
	cancel()
	heard = <-read
	l.setOpen(false)
	l.fail("the stream to the store broke", false)
	return true, heard
}

// write sends what waits; what gathers while it sends leaves together.
func (l *link) write(ctx context.Context, s claimStream) {
	for {
		req := l.batch()
		if len(req.GetOps()) == 0 {
			if l.over() {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-l.wake:
			}
			continue
		}
		if s.Send(req) != nil {
			return
		}
	}
}

// read takes results and pushes in their order until the stream ends.
func (l *link) read(s claimStream) (heard bool) {
	for {
		resp, err := s.Recv()
		if err != nil {
			l.client.cfg.Log.Debug("a claims stream to a store ended", "store", l.addr, "error", err)
			return heard
		}
		heard = true
		for _, r := range resp.GetResults() {
			if o := l.answered(r.GetRef()); o != nil {
				l.take(o, r)
			}
		}
		for _, p := range resp.GetPushes() {
			l.client.pushed(l, p)
		}
	}
}

// take hands a result on. What the store refuses since another owns the shard is tried once more.
func (l *link) take(o *op, r *meshv1.ClaimResult) {
	if r.GetCode() != wirev1.Code_CODE_CONFLICT {
		o.finish(l, r, true)
		return
	}
	if !o.moved {
		o.moved = true
		if l.client.again.add(o) {
			return
		}
	}
	l.client.cfg.Stores.Refresh()
	o.finish(nil, failure(wirev1.Code_CODE_UNAVAILABLE, "the resource's shard is changing its owner"), false)
}

package publish

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/routerlink"
)

const (
	// requestTimeout is for all routers that are asked, one after the other.
	requestTimeout = 5 * time.Second
	// lookEvery is how often it is looked whether a router that has not answered yet is still
	// there.
	lookEvery  = 100 * time.Millisecond
	retryAfter = 500 * time.Millisecond
)

// errGone says that the router went while it was asked.
var errGone = code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the connection to the router ended before it answered: the message may have been published")

// request asks a router, and answers for every item whatever comes back. Where the router is not
// there, drains or goes, another one is asked for what is sure to be published once all the same:
// what the first one did not take, and what a log knows by its key. They stand in the same order in
// each request, so that their order in the log is that of the first request or of the second, which
// is the same.
func (p *Publisher) request(ctx context.Context, conn exchange.Conn, batch []item) []*meshv1.ClientPublishReply_Result {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := &round{results: make([]*meshv1.ClientPublishReply_Result, len(batch)), batch: batch}
	for i := range batch {
		r.open = append(r.open, i)
	}
	for len(r.open) > 0 {
		router, ok := p.pick(conn, r.passed)
		if !ok {
			p.fail(r, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "no router is reachable"))
			break
		}
		r.passed = append(r.passed, router)
		results, err := p.ask(ctx, router, r)
		switch {
		case err == nil:
			p.settle(r, results)
		case errors.Is(err, bus.ErrNobody): // it took nothing
		case errors.Is(err, errGone):
			p.failOnce(r)
		default:
			p.fail(r, err)
		}
	}
	return r.results
}

// round is the way of a batch over one router or several.
type round struct {
	batch   []item
	results []*meshv1.ClientPublishReply_Result
	open    []int             // places without a result
	passed  []routerlink.Live // asked already
}

// pick chooses the connection's router, but for those passed over.
func (p *Publisher) pick(conn exchange.Conn, passed []routerlink.Live) (routerlink.Live, bool) {
	live := p.cfg.Routers()
	ids := make([]string, 0, len(live))
	for _, r := range live {
		if !slices.Contains(passed, r) {
			ids = append(ids, r.ID)
		}
	}
	id := routerlink.Pick(ids, uint64(conn.Loop)<<48^uint64(conn.Gen)<<24^uint64(conn.Slot))
	i := slices.IndexFunc(live, func(r routerlink.Live) bool { return r.ID == id })
	if i < 0 {
		return routerlink.Live{}, false
	}
	return live[i], true
}

// settle notes results; what a router refuses because it stops stays open.
func (p *Publisher) settle(r *round, results []*meshv1.ClientPublishReply_Result) {
	var left []int
	for i, place := range r.open {
		r.results[place] = results[i]
		if results[i].GetCode() == wirev1.Code_CODE_DRAINING {
			left = append(left, place)
		}
	}
	p.Sent.Add(uint64(len(r.open) - len(left)))
	r.open = left
}

// failOnce fails what may have been published and can't be published again: it is not known. Others
// stay open.
func (p *Publisher) failOnce(r *round) {
	var left []int
	for _, place := range r.open {
		if it := r.batch[place].item; it.GetDedupeKey() != "" && p.cfg.Durable(it.GetTopic()) {
			left = append(left, place)
			continue
		}
		p.Unavailable.Add(1)
		r.results[place] = failed(errGone)
	}
	r.open = left
}

// fail fails what is open.
func (p *Publisher) fail(r *round, err error) {
	p.Unavailable.Add(uint64(len(r.open)))
	for _, place := range r.open {
		r.results[place] = failed(code.From(err))
	}
	r.open = nil
}

// ask asks one router about what is open, until it answers or goes.
func (p *Publisher) ask(ctx context.Context, router routerlink.Live, r *round) ([]*meshv1.ClientPublishReply_Result, error) {
	req := &meshv1.ClientPublish{EdgeId: p.cfg.Edge}
	for _, place := range r.open {
		req.Items = append(req.Items, r.batch[place].item)
	}
	data, err := proto.Marshal(req)
	switch {
	case err != nil:
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a message can't be encoded: "+err.Error())
	case len(data) > bus.MaxMessage:
		return nil, code.New(wirev1.Code_CODE_PAYLOAD_TOO_LARGE, "the message is too large for NATS")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	look := time.AfterFunc(lookEvery, func() { p.look(ctx, router, cancel) })
	defer look.Stop()
	if data, err = p.cfg.Request(ctx, bus.RouterPublish(router.ID), data); err != nil {
		if errors.Is(context.Cause(ctx), errGone) {
			return nil, errGone
		}
		return nil, err
	}
	reply := &meshv1.ClientPublishReply{}
	if err := proto.Unmarshal(data, reply); err != nil {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "the router's answer can't be read")
	}
	if len(reply.GetResults()) != len(r.open) {
		return nil, code.New(wirev1.Code_CODE_INTERNAL, "the router answered for a different number of messages")
	}
	return reply.GetResults(), nil
}

// look ends the wait for a router that is gone.
func (p *Publisher) look(ctx context.Context, router routerlink.Live, cancel context.CancelCauseFunc) {
	switch {
	case ctx.Err() != nil:
	case slices.Contains(p.cfg.Routers(), router):
		time.AfterFunc(lookEvery, func() { p.look(ctx, router, cancel) })
	default:
		cancel(errGone)
	}
}

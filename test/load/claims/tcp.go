package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// subscriber is a client of the edge; its owner is "client:" and its name.
type subscriber struct {
	*peer.Conn
	id uint32
}

// state is the next ClaimState.
func (s *subscriber) state() (*wirev1.ClaimState, error) {
	st := &wirev1.ClaimState{}
	return st, s.Await(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, st)
}

// do asks for something, and waits for the answer. Of what is pushed before it a grant is kept.
func (s *subscriber) do(q *wirev1.Claim, want wirev1.ClaimState_State) (*wirev1.ClaimState, error) {
	s.id++
	q.Id = s.id
	if err := s.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, q); err != nil {
		return nil, err
	}
	for {
		st, err := s.state()
		switch {
		case err != nil:
			return nil, err
		case st.GetId() == q.GetId() && st.GetState() == want:
			return st, nil
		case st.GetId() == q.GetId():
			return nil, fmt.Errorf("%v: %v where %v was to come", q, st, want)
		}
	}
}

// granted waits until a grant is pushed.
func (s *subscriber) granted() (*wirev1.ClaimState, error) {
	for {
		st, err := s.state()
		if err != nil || st.GetState() == wirev1.ClaimState_STATE_GRANTED {
			return st, err
		}
	}
}

// tcpPairs are pairs and hand-overs over subscribers' connections.
func (b *bench) tcpPairs(ctx context.Context) (err error) {
	defer try.Catch(&err)
	subs := make([]*subscriber, b.callers)
	for i := range subs {
		subs[i] = &subscriber{Conn: try.Get(peer.Dial(ctx, b.mesh.Edges[0].Addr, fmt.Sprintf("c-%d", i)))}
		defer func() { _ = subs[i].Close() }()
	}
	pair := func(_ context.Context, i, n int) error {
		q := &wirev1.Claim{Resource: fmt.Sprintf("%s/tcp-%d-%d", plain, i, n%64), Op: wirev1.Claim_OP_ACQUIRE}
		st, err := subs[i].do(q, wirev1.ClaimState_STATE_GRANTED)
		if err == nil {
			_, err = subs[i].do(&wirev1.Claim{Resource: q.GetResource(), Op: wirev1.Claim_OP_RELEASE, Token: st.GetToken()}, wirev1.ClaimState_STATE_RELEASED)
		}
		return err
	}
	try.Do(suite.Poll(ctx, 10*time.Second, func() error { return pair(ctx, 0, 0) }))
	profiled := b.profiles(ctx, "tcp")
	try.Do(errors.Join(b.loops(ctx, "TCP", "connections", pair), profiled()))
	took := try.Get(open(ctx, b.rate, b.Span/2, len(subs), pair))
	b.Add(table.AtMost(fmt.Sprintf("TCP: a pair at %.0f/s, p99", b.rate), table.Quantile(took, 0.99), "ms", goalPair, fmt.Sprintf("p50 %.2f, max %.2f", table.Quantile(took, 0.5), table.Quantile(took, 1))))
	return b.tcpHot(subs[:min(contenders, len(subs))])
}

// tcpHot hands one resource over, as hot does.
func (b *bench) tcpHot(line []*subscriber) (err error) {
	defer try.Catch(&err)
	const resource = plain + "/hot-tcp"
	var token uint64
	for i, s := range line {
		want := wirev1.ClaimState_STATE_QUEUED
		if i == 0 {
			want = wirev1.ClaimState_STATE_GRANTED
		}
		st := try.Get(s.do(&wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_ACQUIRE}, want))
		token = max(token, st.GetToken())
	}
	var took []time.Duration
	for range handOvers {
		holder, next := line[0], line[1]
		told := make(chan error, 1)
		var st *wirev1.ClaimState
		var at time.Time
		go func() { // until the grant
			var err error
			st, err = next.granted()
			at = time.Now()
			told <- err
		}()
		began := time.Now()
		_, err := holder.do(&wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_RELEASE, Token: token}, wirev1.ClaimState_STATE_RELEASED)
		try.Do(errors.Join(err, <-told))
		took, token = append(took, at.Sub(began)), st.GetToken()
		try.Get(next.do(&wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_RENEW, Token: token}, wirev1.ClaimState_STATE_GRANTED))
		try.Get(holder.do(&wirev1.Claim{Resource: resource, Op: wirev1.Claim_OP_ACQUIRE}, wirev1.ClaimState_STATE_QUEUED))
		line = append(line[1:], holder)
	}
	b.Add(table.AtMost(fmt.Sprintf("TCP: hand-over among %d at one resource, median", len(line)), table.Quantile(took, 0.5), "ms", goalHandOver,
		fmt.Sprintf("p99 %.2f, max %.2f", table.Quantile(took, 0.99), table.Quantile(took, 1))))
	return nil
}

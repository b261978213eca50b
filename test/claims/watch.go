package claims

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// watched is the longest that an owner sits at a stream: then it asks.
const watched = 2 * time.Second

// watch waits at a stream for the grant. What the stream says first is the answer of a check; a
// grant that follows was so at some moment since the owner has been waiting.
func (o *owner) watch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watched)
	defer cancel()
	first := &Op{Kind: Check, Owner: o.name, Call: o.History.Now()}
	stream, err := o.api().Watch(ctx, &pushmeshv1.WatchRequest{Resource: o.resource, Owner: o.name})
	var res *pushmeshv1.WatchResponse
	if err == nil {
		res, err = stream.Recv()
	}
	o.History.count(err)
	if first.Return = o.History.Now(); err != nil {
		return
	}
	first.Answer = answer(res.GetState())
	switch first.Answer.State {
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED:
		// no answer, but what happened since the owner knew something
		o.place = wirev1.ClaimState_STATE_FREE
		return
	case wirev1.ClaimState_STATE_GRANTED, wirev1.ClaimState_STATE_QUEUED, wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
		o.note(first)
	}
	for o.place == wirev1.ClaimState_STATE_QUEUED {
		res, err := stream.Recv()
		if err != nil {
			return
		}
		switch st := res.GetState(); st.GetState() {
		case wirev1.ClaimState_STATE_GRANTED:
			o.note(&Op{Kind: Told, Owner: o.name, Call: first.Return, Return: o.History.Now(), Answer: answer(st)})
		case wirev1.ClaimState_STATE_QUEUED:
		case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED, wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
			o.place = wirev1.ClaimState_STATE_FREE
		}
	}
}

// note writes down what the stream said.
func (o *owner) note(op *Op) {
	o.History.Add(o.resource, op)
	o.desk.did(o.resource, op, done)
	switch op.Answer.State {
	case wirev1.ClaimState_STATE_GRANTED:
		o.place, o.token = op.Answer.State, op.Answer.Token
	case wirev1.ClaimState_STATE_QUEUED:
	case wirev1.ClaimState_STATE_LOST, wirev1.ClaimState_STATE_RELEASED, wirev1.ClaimState_STATE_FREE, wirev1.ClaimState_STATE_HELD_BY_OTHER:
		o.place = wirev1.ClaimState_STATE_FREE
	}
}

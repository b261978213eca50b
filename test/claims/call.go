package claims

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// unanswered is how long a call is waited for; what came of it is unknown then.
const unanswered = 3 * time.Second

// Dial connects to routers, which end with the program.
func Dial(addrs ...string) (all []pushmeshv1.ClaimServiceClient, err error) {
	for _, addr := range addrs {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		all = append(all, pushmeshv1.NewClaimServiceClient(conn))
	}
	return all, nil
}

// outcome of a call: it did what it says, was refused and did nothing, or nobody knows.
type outcome uint8

const (
	done outcome = iota
	refused
	unknown
)

// call does op at a router and writes it down, unless it was refused.
func call(ctx context.Context, api pushmeshv1.ClaimServiceClient, h *History, resource string, op *Op) outcome {
	ctx, cancel := context.WithTimeout(ctx, unanswered)
	defer cancel()
	op.Call = h.Now()
	st, err := ask(ctx, api, resource, op)
	op.Return = h.Now()
	h.count(err)
	switch c := code.Of(err); {
	case err == nil:
		op.Answer = answer(st)
	case op.Kind == Renew && c == wirev1.Code_CODE_NOT_HELD:
		op.Answer.NotHeld = true
	case c == wirev1.Code_CODE_OVERLOADED, c == wirev1.Code_CODE_INVALID_ARGUMENT:
		return refused
	default:
		op.Return = Never
		h.Add(resource, op)
		return unknown
	}
	h.Add(resource, op)
	return done
}

func ask(ctx context.Context, api pushmeshv1.ClaimServiceClient, resource string, op *Op) (*wirev1.ClaimState, error) {
	switch op.Kind {
	case Acquire:
		res, err := api.Acquire(ctx, &pushmeshv1.AcquireRequest{Resource: resource, Owner: op.Owner, Priority: op.Priority, NoWait: op.NoWait})
		return res.GetState(), err
	case Renew:
		res, err := api.Renew(ctx, &pushmeshv1.RenewRequest{Resource: resource, Owner: op.Owner, Token: op.Token})
		return res.GetState(), err
	case Release:
		res, err := api.Release(ctx, &pushmeshv1.ReleaseRequest{Resource: resource, Owner: op.Owner, Token: op.Token, Successor: op.Successor})
		return res.GetState(), err
	case Leave:
		res, err := api.Leave(ctx, &pushmeshv1.LeaveRequest{Resource: resource, Owner: op.Owner})
		return res.GetState(), err
	case Check, Told:
	}
	res, err := api.Check(ctx, &pushmeshv1.CheckRequest{Resource: resource, Owner: op.Owner})
	return res.GetState(), err
}

func answer(st *wirev1.ClaimState) Answer {
	return Answer{
		NotHeld: st.GetCode() == wirev1.Code_CODE_NOT_HELD, State: st.GetState(), Token: st.GetToken(), Position: st.GetPosition(),
		Holder: st.GetHolder(), Holding: st.GetHolding(), Waiting: st.GetWaiting(),
	}
}

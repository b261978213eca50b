package claims

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// world that a fake lives in.
type world struct {
	fault        string // of the fake; "": none
	holders      int
	ttl, waitTTL time.Duration // 0: forever
	// answers get lost now and then, and operations happen late, as when processes die
	lossy bool
}

// fake serves claims from memory, right or with one fault.
type fake struct {
	pushmeshv1.UnimplementedClaimServiceServer
	world

	mu        sync.Mutex
	rand      *rand.Rand
	resources map[string]*fakeResource
	late      sync.WaitGroup
}

type fakeResource struct {
	holds, line []*fakePlace
	last        uint64
	ops         int
	changed     chan struct{} // closed with every change
}

type fakePlace struct {
	owner    string
	token    uint64
	priority uint32
	taken    bool
	granted  time.Time
	until    time.Time // zero: forever
}

// serve starts a server of its own.
func (f *fake) serve(t *testing.T) []pushmeshv1.ClaimServiceClient {
	t.Helper()
	f.rand, f.resources = rand.New(rand.NewPCG(1, 2)), map[string]*fakeResource{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pushmeshv1.RegisterClaimServiceServer(srv, f)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Stop(); f.late.Wait() })
	apis, err := Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return apis
}

// sometimes is true once in n times, in a world with that fault.
func (f *fake) sometimes(fault string, n int) bool { return f.fault == fault && f.rand.IntN(n) == 0 }

func (f *fake) resource(name string) *fakeResource {
	r := f.resources[name]
	if r == nil {
		r = &fakeResource{changed: make(chan struct{})}
		f.resources[name] = r
	}
	f.expire(r)
	if r.ops++; r.ops%30 == 0 { // a restart
		switch f.fault {
		case "forgets":
			r.holds, r.line = nil, nil
		case "numbers anew":
			r.last = 0
		}
	}
	return r
}

func (f *fake) until(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

func (f *fake) expire(r *fakeResource) {
	if f.fault == "never expires" {
		return
	}
	over := func(p *fakePlace) bool { return !p.until.IsZero() && time.Now().After(p.until) }
	r.line = slices.DeleteFunc(r.line, over)
	r.holds = slices.DeleteFunc(r.holds, over)
	if !f.sometimes("lets newcomers pass", 2) {
		f.promote(r)
	}
}

func (f *fake) promote(r *fakeResource) {
	for len(r.line) > 0 && len(r.holds) < f.holders {
		next := 0
		if f.sometimes("overtakes", 5) {
			next = len(r.line) - 1
		}
		p := r.line[next]
		r.line = slices.Delete(r.line, next, next+1)
		f.grant(r, p)
	}
}

func (f *fake) grant(r *fakeResource, p *fakePlace) {
	r.last++
	p.token, p.granted, p.until = r.last, time.Now(), f.until(f.ttl)
	if f.sometimes("ends early", 3) {
		p.until = f.until(f.ttl / 10)
	}
	r.holds = append(r.holds, p)
	if f.sometimes("repeats tokens", 10) {
		r.last--
	}
}

func find(list []*fakePlace, owner string) int {
	return slices.IndexFunc(list, func(p *fakePlace) bool { return p.owner == owner })
}

// state is what is so for an owner, who is heard of by this.
func (f *fake) state(r *fakeResource, name, owner string) *wirev1.ClaimState {
	st := &wirev1.ClaimState{Resource: name, Holding: uint32(len(r.holds)), Waiting: uint32(len(r.line))}
	if len(r.holds) > 0 {
		st.Holder = r.holds[0].owner
	}
	if i := find(r.holds, owner); i >= 0 {
		r.holds[i].taken = true
		st.State, st.Token, st.Holder = wirev1.ClaimState_STATE_GRANTED, r.holds[i].token, owner
	} else if i := find(r.line, owner); i >= 0 {
		r.line[i].until = f.until(f.waitTTL)
		st.State, st.Position = wirev1.ClaimState_STATE_QUEUED, uint32(i+1)
		if f.sometimes("miscounts", 20) {
			st.Position++
		}
	} else if st.State = wirev1.ClaimState_STATE_FREE; len(r.holds) > 0 {
		st.State = wirev1.ClaimState_STATE_HELD_BY_OTHER
	}
	return st
}

// at does an operation on a resource. In a lossy world its answer may be lost, before it happens,
// after, or while it is late.
func (f *fake) at(name string, do func(r *fakeResource) (*wirev1.ClaimState, error)) (*wirev1.ClaimState, error) {
	locked := func() (*wirev1.ClaimState, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		r := f.resource(name)
		defer func() { close(r.changed); r.changed = make(chan struct{}) }()
		return do(r)
	}
	f.mu.Lock()
	luck := f.rand.IntN(150)
	lost := f.sometimes("answers before it commits", 30)
	f.mu.Unlock()
	if lost {
		f.mu.Lock()
		defer f.mu.Unlock()
		r := f.resource(name)
		before := &fakeResource{last: r.last, ops: r.ops, changed: r.changed}
		for _, p := range r.holds {
			q := *p
			before.holds = append(before.holds, &q)
		}
		for _, p := range r.line {
			q := *p
			before.line = append(before.line, &q)
		}
		st, err := do(r)
		f.resources[name] = before
		return st, err
	}
	if !f.lossy || luck > 2 {
		return locked()
	}
	gone := code.New(wirev1.Code_CODE_UNAVAILABLE, "the answer is lost")
	switch luck {
	case 0:
		_, _ = locked()
	case 1:
		f.late.Go(func() {
			<-time.After(20 * time.Millisecond)
			_, _ = locked()
		})
	}
	return nil, gone
}

func (f *fake) Acquire(_ context.Context, q *pushmeshv1.AcquireRequest) (*pushmeshv1.AcquireResponse, error) {
	st, err := f.at(q.GetResource(), func(r *fakeResource) (*wirev1.ClaimState, error) {
		free := len(r.line) == 0 || f.fault == "lets newcomers pass"
		if room := len(r.holds) < f.holders || f.sometimes("grants twice", 20); find(r.holds, q.GetOwner()) < 0 && find(r.line, q.GetOwner()) < 0 {
			p := &fakePlace{owner: q.GetOwner(), priority: q.GetPriority(), until: f.until(f.waitTTL)}
			if room && free {
				f.grant(r, p)
			} else if !q.GetNoWait() {
				i := slices.IndexFunc(r.line, func(o *fakePlace) bool { return o.priority < p.priority })
				if i < 0 {
					i = len(r.line)
				}
				r.line = slices.Insert(r.line, i, p)
			}
		}
		return f.state(r, q.GetResource(), q.GetOwner()), nil
	})
	return &pushmeshv1.AcquireResponse{State: st}, err
}

func (f *fake) Renew(_ context.Context, q *pushmeshv1.RenewRequest) (*pushmeshv1.RenewResponse, error) {
	st, err := f.at(q.GetResource(), func(r *fakeResource) (*wirev1.ClaimState, error) {
		i := find(r.holds, q.GetOwner())
		if i < 0 || r.holds[i].token != q.GetToken() && !f.sometimes("renews with old tokens", 2) {
			return nil, code.New(wirev1.Code_CODE_NOT_HELD, "not held")
		}
		r.holds[i].until = f.until(f.ttl)
		return f.state(r, q.GetResource(), q.GetOwner()), nil
	})
	return &pushmeshv1.RenewResponse{State: st}, err
}

func (f *fake) Release(_ context.Context, q *pushmeshv1.ReleaseRequest) (*pushmeshv1.ReleaseResponse, error) {
	st, err := f.at(q.GetResource(), func(r *fakeResource) (*wirev1.ClaimState, error) {
		i := find(r.holds, q.GetOwner())
		if f.fault == "releases for anybody" {
			i = slices.IndexFunc(r.holds, func(p *fakePlace) bool { return p.token == q.GetToken() })
		}
		if i < 0 || r.holds[i].token != q.GetToken() && !f.sometimes("releases with old tokens", 2) {
			st := f.state(r, q.GetResource(), "")
			st.Code = wirev1.Code_CODE_NOT_HELD
			return st, nil
		}
		if n := q.GetSuccessor(); n != "" && (n == q.GetOwner() || find(r.holds, n) >= 0) {
			return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "a holder can't succeed")
		}
		r.holds = slices.Delete(r.holds, i, i+1)
		if n := q.GetSuccessor(); n != "" {
			p := &fakePlace{owner: n}
			if j := find(r.line, n); j >= 0 {
				p = r.line[j]
				r.line = slices.Delete(r.line, j, j+1)
			}
			f.grant(r, p)
		}
		if f.fault != "lets newcomers pass" {
			f.promote(r)
		}
		st := f.state(r, q.GetResource(), "")
		st.State, st.Holder = wirev1.ClaimState_STATE_RELEASED, ""
		return st, nil
	})
	return &pushmeshv1.ReleaseResponse{State: st}, err
}

func (f *fake) Leave(_ context.Context, q *pushmeshv1.LeaveRequest) (*pushmeshv1.LeaveResponse, error) {
	st, err := f.at(q.GetResource(), func(r *fakeResource) (*wirev1.ClaimState, error) {
		gone := false
		if i := find(r.line, q.GetOwner()); i >= 0 {
			r.line, gone = slices.Delete(r.line, i, i+1), true
		} else if i := find(r.holds, q.GetOwner()); i >= 0 && !r.holds[i].taken {
			r.holds, gone = slices.Delete(r.holds, i, i+1), true
		}
		f.promote(r)
		st := f.state(r, q.GetResource(), q.GetOwner())
		if gone {
			st.State, st.Holder = wirev1.ClaimState_STATE_RELEASED, ""
		}
		return st, nil
	})
	return &pushmeshv1.LeaveResponse{State: st}, err
}

func (f *fake) Check(_ context.Context, q *pushmeshv1.CheckRequest) (*pushmeshv1.CheckResponse, error) {
	st, err := f.at(q.GetResource(), func(r *fakeResource) (*wirev1.ClaimState, error) {
		return f.state(r, q.GetResource(), q.GetOwner()), nil
	})
	return &pushmeshv1.CheckResponse{State: st}, err
}

func (f *fake) Watch(q *pushmeshv1.WatchRequest, stream grpc.ServerStreamingServer[pushmeshv1.WatchResponse]) error {
	for {
		f.mu.Lock()
		r := f.resource(q.GetResource())
		st, changed := f.state(r, q.GetResource(), q.GetOwner()), r.changed
		f.mu.Unlock()
		if err := stream.Send(&pushmeshv1.WatchResponse{State: st}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

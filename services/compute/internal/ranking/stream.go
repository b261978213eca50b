package ranking

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/intake"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// jobWeight is about what a job takes for each of its bytes: as it came, and ready to be scored.
const jobWeight = 4

type jobStream = grpc.BidiStreamingServer[meshv1.RankJobsRequest, meshv1.RankJobsResponse]

// RankJobs implements meshv1.ComputeServiceServer. One goroutine takes jobs in; another one sends
// what is done, as many answers together as there are. The pool's bounds bound what a stream has
// under way, and its bytes are charged to the node's budget: one whose caller has more than its
// share, or does not read its answers, is not read from. A planned stop answers what
// is under way.
func (s *Service) RankJobs(stream jobStream) error {
	if err := stream.Send(&meshv1.RankJobsResponse{TakesPacked: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	out := newAnswers()
	out.call = intake.Of(stream.Context())
	sent, received := make(chan error, 1), make(chan error, 1)
	go func() { sent <- s.send(ctx, stream, out) }()
	go func() { received <- s.receive(ctx, stream, out) }()
	var end error
	select {
	case err := <-sent:
		return err
	case <-s.draining:
		end = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "the node is stopping")
	case err := <-received:
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	out.finish()
	if err := <-sent; err != nil {
		return err
	}
	return end
}

func (s *Service) receive(ctx context.Context, stream jobStream, out *answers) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, it := range req.GetItems() {
			if err := out.room(ctx); err != nil {
				return err
			}
			s.begin(ctx, it, out, &waiting)
		}
		for _, ref := range req.GetCancel() {
			out.cancel(ref)
		}
	}
}

// begin has one job of a stream done. What has to be waited for, a goroutine of its own waits for.
func (s *Service) begin(ctx context.Context, it *meshv1.RankJobsRequest_Item, out *answers, waiting *sync.WaitGroup) {
	a, job := answer{ref: it.GetRef()}, it.GetJob()
	ctx, cancel := limited(ctx, job)
	out.expect(a.ref, jobWeight*proto.Size(job), cancel)
	t := s.rollouts.choose(job.GetRank().GetNamespace(), job.GetRank().GetModel())
	w, ready, err := s.atOnce(job, t)
	if ready {
		s.enter(ctx, a, w, err, out)
		return
	}
	leave, err := s.anteroom.enter(job)
	if err != nil {
		s.enter(ctx, a, nil, err, out)
		return
	}
	waiting.Go(func() {
		w, err := s.later(ctx, job, t)
		leave() // before the answer: who has it finds the place free
		s.enter(ctx, a, w, err, out)
	})
}

// enter the pool with a job, or answer why it can't be done.
func (s *Service) enter(ctx context.Context, a answer, w *work, err error, out *answers) {
	if err == nil {
		a.work = w
		err = w.admit(func() error {
			return s.pool.Go(ctx, w.req.GetCaller(), w.cost, w, func(times cpupool.Times, err error) {
				a.times, a.err = times, err
				out.add(a)
			})
		})
	}
	if err != nil {
		a.err = err
		out.add(a)
	}
}

// limited gives a job's context the deadline that it names.
func limited(ctx context.Context, job *meshv1.RankJobRequest) (context.Context, context.CancelFunc) {
	if us := job.GetTimeoutUs(); us > 0 {
		return context.WithTimeout(ctx, time.Duration(us)*time.Microsecond)
	}
	return context.WithCancel(ctx)
}

// send answers until all is answered, or ctx ends.
func (s *Service) send(ctx context.Context, stream jobStream, out *answers) error {
	var some []answer
	for {
		var err error
		if some, err = out.take(ctx, some[:0]); err != nil {
			return err
		}
		if len(some) == 0 {
			return nil
		}
		resp := &meshv1.RankJobsResponse{}
		for i := range some {
			resp.Items = append(resp.Items, s.item(&some[i]))
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func (s *Service) item(a *answer) *meshv1.RankJobsResponse_Item {
	if e := s.ended(a.work, a.times, a.err); e != nil {
		return &meshv1.RankJobsResponse_Item{Ref: a.ref, Code: e.Code, Error: e.Message, RetryAfterMs: uint32(e.RetryAfter.Milliseconds())}
	}
	return &meshv1.RankJobsResponse_Item{Ref: a.ref, Job: a.work.response(a.times)}
}

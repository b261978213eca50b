package ranking

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/cpupool"
	"github.com/pushmesh/pushmesh/internal/expr"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// stream is the jobs of one stream.
type stream struct {
	*node
	ctx     context.Context //nolint:containedctx // the stream's
	out     *answers
	ready   []answer
	waiting sync.WaitGroup
	ref     uint64
}

func newStream(t *testing.T, n *node) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	s := &stream{node: n, ctx: ctx, out: newAnswers()}
	t.Cleanup(func() {
		cancel()
		s.waiting.Wait()
	})
	return s
}

// ask for a job, which must not take the stream's time.
func (s *stream) ask(job *meshv1.RankJobRequest) (ref uint64) {
	s.ref++
	s.begin(s.ctx, &meshv1.RankJobsRequest_Item{Ref: s.ref, Job: job}, s.out, &s.waiting)
	return s.ref
}

// next answer.
func (s *stream) next(t *testing.T) (ref uint64, it *meshv1.RankJobsResponse_Item) {
	t.Helper()
	if len(s.ready) == 0 {
		var err error
		if s.ready, err = s.out.take(s.ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	one := s.ready[0]
	s.ready = s.ready[1:]
	return one.ref, s.item(&one)
}

func byModel(version uint64) *meshv1.RankJobRequest {
	return &meshv1.RankJobRequest{Rank: &pushmeshv1.RankRequest{
		Model: &pushmeshv1.ModelScorer{Name: "ctr", Version: version}, Candidates: []*pushmeshv1.Candidate{{Id: "a"}},
	}}
}

func byExpression(text, filter string) *meshv1.RankJobRequest {
	return &meshv1.RankJobRequest{Caller: "c", Rank: &pushmeshv1.RankRequest{
		Expression: &pushmeshv1.ExpressionScorer{Expression: text}, Filter: filter, Candidates: []*pushmeshv1.Candidate{{Id: "a"}},
	}}
}

// A job that waits for its model holds up no other one, and is done once the model is there.
func TestWaitingForAModel(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.wrong[2] = loading
	models.wrong[3] = loading
	n := startNode(t, models)
	s := newStream(t, n)
	late, gone, never, there := s.ask(byModel(2)), s.ask(byModel(3)), s.ask(byModel(9)), s.ask(byModel(1))
	for range 2 {
		switch ref, it := s.next(t); {
		case ref == there && it.GetJob().GetRank().GetModelVersion() == 1:
		case ref == never && it.GetCode() == wirev1.Code_CODE_NOT_FOUND:
		default:
			t.Errorf("job %d: %v", ref, it)
		}
	}
	s.out.cancel(gone)
	if ref, it := s.next(t); ref != gone || it.GetCode() != wirev1.Code_CODE_CANCELLED {
		t.Errorf("nobody waits for it: job %d, %v", ref, it)
	}
	if got := n.anteroom.waiting(); got != 1 {
		t.Errorf("%d jobs wait, want 1", got)
	}
	models.set(t, 2, lightGBM("regression", 1, 2))
	if ref, it := s.next(t); ref != late || it.GetJob().GetRank().GetModelVersion() != 2 {
		t.Errorf("job %d, %v", ref, it)
	}
	if resp, err := n.rank(t, "", &pushmeshv1.ModelScorer{Name: "ctr", Version: 9}, nil); code.Of(err) != wirev1.Code_CODE_NOT_FOUND {
		t.Error(resp, err)
	}
	s.waiting.Wait()
	if n.anteroom.jobs != 0 || n.anteroom.bytes != 0 {
		t.Errorf("%d jobs of %d bytes are left", n.anteroom.jobs, n.anteroom.bytes)
	}
}

// A quarter of a job's time is left to ask another node in.
func TestWaitingLeavesTime(t *testing.T) {
	models := newLibrary()
	models.wrong[1] = loading
	n := startNode(t, models)
	for timeout := 50 * time.Millisecond; ; timeout *= 2 { // a busy machine is late now and then
		job := byModel(1)
		job.TimeoutUs = uint64(timeout.Microseconds())
		_, err := n.RankJob(t.Context(), job)
		if code.Of(err) == wirev1.Code_CODE_UNAVAILABLE && code.From(err).RetryAfter > 0 {
			return
		}
		if timeout > patience/4 {
			t.Fatalf("within %s: %v", timeout, err)
		}
	}
}

func TestFewWait(t *testing.T) {
	models := newLibrary()
	models.set(t, 1, lightGBM("regression", 1, 1))
	models.wrong[2] = loading
	n := startNode(t, models)
	s := newStream(t, n)
	for range maxWaiting {
		s.ask(byModel(2))
	}
	for what, job := range map[string]*meshv1.RankJobRequest{"a model": byModel(2), "an expression": byExpression("1", "")} {
		if _, err := n.RankJob(t.Context(), job); code.Of(err) != wirev1.Code_CODE_OVERLOADED || code.From(err).RetryAfter == 0 {
			t.Errorf("%s: %v", what, err)
		}
		ref := s.ask(job)
		if got, it := s.next(t); got != ref || it.GetCode() != wirev1.Code_CODE_OVERLOADED {
			t.Errorf("%s, on a stream: %d %v", what, got, it)
		}
	}
	if _, err := n.RankJob(t.Context(), byModel(1)); err != nil {
		t.Errorf("what waits for nothing: %v", err)
	}
	a := &anteroom{}
	large := byExpression(strings.Repeat("x", maxWaitingBytes/2), "")
	leave, err := a.enter(large)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.enter(large); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("more bytes than may wait: %v", err)
	}
	leave()
	if _, err := a.enter(large); err != nil {
		t.Error(err)
	}
}

// held is a task that holds a worker.
type held struct{ entered, leave chan struct{} }

func (h *held) Step(time.Duration) (bool, error) {
	close(h.entered)
	<-h.leave
	return true, nil
}

// An expression is compiled by a worker, as work of its caller, however long that takes; jobs with
// others go on.
func TestExpressionsAreCompiledInThePool(t *testing.T) {
	n := startNode(t, newLibrary())
	s := newStream(t, n)
	known := s.ask(byExpression("1.0", "priority < 1"))
	if ref, it := s.next(t); ref != known || it.GetCode() != wirev1.Code_CODE_OK {
		t.Fatal(ref, it)
	}
	var holds []*held
	for range 2 { // every worker
		h := &held{make(chan struct{}), make(chan struct{})}
		if err := n.pool.Go(t.Context(), "hold", 1, h, func(_ cpupool.Times, _ error) {}); err != nil {
			t.Fatal(err)
		}
		<-h.entered
		holds = append(holds, h)
	}
	hostile := strings.Repeat("has(a.b)||", 400) + "true"
	bad, fresh := s.ask(byExpression("1.0", hostile)), s.ask(byExpression("2.0", "priority < 2"))
	if n.programs.Ready(hostile, expr.Filter) || n.programs.Ready("2.0", expr.Score) {
		t.Error("compiled without a worker")
	}
	for _, h := range holds {
		close(h.leave)
	}
	for range 2 {
		switch ref, it := s.next(t); {
		case ref == bad && it.GetCode() == wirev1.Code_CODE_INVALID_ARGUMENT && strings.Contains(it.GetError(), "filter"):
		case ref == fresh && it.GetJob().GetRank().GetRanked()[0].GetScore() == 2:
		default:
			t.Errorf("job %d: %v", ref, it)
		}
	}
	if !n.programs.Ready(hostile, expr.Filter) {
		t.Error("a refusal is not kept")
	}
	// Who has no time left does not have it compiled.
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.RankJob(over, byExpression("3.0", "")); code.Of(err) != wirev1.Code_CODE_CANCELLED {
		t.Error(err)
	}
}

package publish

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
	"github.com/pushmesh/pushmesh/services/router/internal/appender"
	"github.com/pushmesh/pushmesh/services/router/internal/edgequeue"
)

// desk is a publisher with a store of a test behind it. "orders" is durable, "open" too and takes
// clients' messages, "live" is ephemeral.
type desk struct {
	*Publisher
	store  *shelf
	routes *journal
}

// journal is what a switchboard was told.
type journal struct {
	mu      sync.Mutex
	routed  []*edgequeue.Delivery
	checked []string
	corked  int
	away    error // why no edge can be reached
}

func (j *journal) Reachable() error { return j.away }

func (j *journal) Route(d *edgequeue.Delivery) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.routed = append(j.routed, d)
	return 1
}

func (j *journal) CheckTopic(topic string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.checked = append(j.checked, topic)
}

func (j *journal) Cork()   { j.cork(1) }
func (j *journal) Uncork() { j.cork(-1) }

func (j *journal) cork(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.corked += n
}

// taken gives what was routed and checked since it was asked last.
func (j *journal) taken() (routed []*edgequeue.Delivery, checked []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	routed, checked, j.routed, j.checked = j.routed, j.checked, nil, nil
	return routed, checked
}

// shelf is the only store. It answers each append at once, as answer says.
type shelf struct {
	meshv1.StoreServiceClient
	mu    sync.Mutex
	items []*meshv1.AppendItem
	// nil: OK with the next seq; nil result: never
	answer func(it *meshv1.AppendItem) *meshv1.AppendResult
	gone   bool
	line   *line
	came   chan struct{} // 1: something came
}

func (s *shelf) Owner(int) (string, meshv1.StoreServiceClient, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return "", nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "nobody owns the shard")
	}
	return "store:1", s, nil
}
func (*shelf) Changed() <-chan struct{} { return nil }
func (*shelf) Refresh()                 {}
func (*shelf) Silent(string) bool       { return false }

// last is the item that was appended last.
func (s *shelf) last(t *testing.T) *meshv1.AppendItem {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) == 0 {
		t.Fatal("nothing was appended")
	}
	return s.items[len(s.items)-1]
}

// waits waits until the item that came last is of a topic.
func (s *shelf) waits(t *testing.T, topic string) *meshv1.AppendItem {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		s.mu.Lock()
		if n := len(s.items); n > 0 && s.items[n-1].GetTopic() == topic {
			defer s.mu.Unlock()
			return s.items[n-1]
		}
		s.mu.Unlock()
		select {
		case <-s.came:
		case <-deadline:
			t.Fatalf("no message of %s comes to the store", topic)
		}
	}
}

func (s *shelf) answers(f func(it *meshv1.AppendItem) *meshv1.AppendResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func (s *shelf) Append(ctx context.Context, _ ...grpc.CallOption) (grpc.BidiStreamingClient[meshv1.AppendRequest, meshv1.AppendResponse], error) {
	l := &line{shelf: s, ctx: ctx, out: make(chan *meshv1.AppendResponse, 1<<12)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = l
	return l, nil
}

// release waits for an item of a topic that is left without an answer, and answers it.
func (s *shelf) release(t *testing.T, topic string) {
	t.Helper()
	it := s.waits(t, topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line.out <- &meshv1.AppendResponse{Results: []*meshv1.AppendResult{{Ref: it.GetRef(), Seq: 1}}}
}

// line is a stream to a shelf.
type line struct {
	grpc.BidiStreamingClient[meshv1.AppendRequest, meshv1.AppendResponse]
	shelf *shelf
	ctx   context.Context
	out   chan *meshv1.AppendResponse
}

func (l *line) CloseSend() error { return nil }

func (l *line) Send(req *meshv1.AppendRequest) error {
	l.shelf.mu.Lock()
	defer l.shelf.mu.Unlock()
	resp := &meshv1.AppendResponse{}
	for _, it := range req.GetItems() {
		l.shelf.items = append(l.shelf.items, proto.CloneOf(it))
		signal(l.shelf.came)
		res := &meshv1.AppendResult{Seq: uint64(len(l.shelf.items)), Epoch: 3, MessageId: it.GetMessageId()}
		if l.shelf.answer != nil {
			res = l.shelf.answer(it)
		}
		if res != nil {
			res.Ref = it.GetRef()
			resp.Results = append(resp.Results, res)
		}
	}
	if len(resp.GetResults()) > 0 {
		l.out <- resp
	}
	return nil
}

func (l *line) Recv() (*meshv1.AppendResponse, error) {
	select {
	case resp := <-l.out:
		return resp, nil
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
}

// open makes a desk whose producers have these limits.
func open(t *testing.T, limits admission.Limits) *desk {
	t.Helper()
	p, _ := newPublisher(noop.NewTracerProvider())
	d := &desk{p, &shelf{came: make(chan struct{}, 1)}, &journal{}}
	p.cfg.Routes = d.routes
	p.cfg.Admission = admission.New(admission.Config{Producer: limits})
	p.cfg.Policies = fixed{policy.NewTable([]*pushmeshv1.Namespace{
		{Prefix: "orders", Policy: &pushmeshv1.Policy{Durable: true, MaxPayload: 1000}},
		{Prefix: "open", Policy: &pushmeshv1.Policy{Durable: true, ClientPublish: true}},
		{Prefix: "live", Policy: &pushmeshv1.Policy{MaxPayload: 1000}},
	})}
	p.cfg.Appender = appender.New(appender.Config{Owners: d.store})
	if err := p.cfg.Appender.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) //nolint:usetesting // the test's context is over by then
		defer cancel()
		if err := p.cfg.Appender.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

// decoded is the message that subscribers get.
func decoded(t *testing.T, body []byte) *wirev1.Message {
	t.Helper()
	m := &wirev1.Message{}
	if err := proto.Unmarshal(body, m); err != nil {
		t.Fatal(err)
	}
	return m
}

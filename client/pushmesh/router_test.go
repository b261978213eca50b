package pushmesh

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type (
	publishStream = grpc.BidiStreamingServer[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	streamResult  = pushmeshv1.PublishStreamResponse_Result
)

// fakeRouter is a real gRPC server with the store's rules for ordered producers in memory. Its
// hooks break things.
type fakeRouter struct {
	pushmeshv1.UnimplementedPublishServiceServer
	addr string
	stop func()

	mu       sync.Mutex
	inFlight string
	logs     map[string][]string          // topic → payloads, seq is the index + 1
	last     map[string]map[string]uint64 // producer id → topic → last producer_seq
	firsts   map[string]*pushmeshv1.PublishResponse
	streams  int
	most     int // messages in one request
	// decide may refuse an item before it is looked at; drop has the stream broken after the item
	// took effect.
	decide func(it *pushmeshv1.PublishStreamRequest_Item) *streamResult
	// amend may replace an answer.
	drop  func(it *pushmeshv1.PublishStreamRequest_Item) bool
	amend func(*streamResult) *streamResult
	// decideCancel may refuse a CancelScheduled, by its number from 1.
	decideCancel func(call int) error
	cancelled    []string // message ids, by call
}

func newFakeRouter(t *testing.T) *fakeRouter {
	t.Helper()
	r := &fakeRouter{
		logs: map[string][]string{}, last: map[string]map[string]uint64{},
		firsts: map[string]*pushmeshv1.PublishResponse{},
	}
	d := newDoor(t, r, "127.0.0.1:0")
	r.addr, r.stop = d.addr, d.stop
	return r
}

// door is one server of a fakeRouter. Several of them are routers before one store.
type door struct {
	*fakeRouter
	addr    string
	stop    func()
	health  *health.Server // SERVING until told otherwise
	streams atomic.Int32
	// refuse says what the door answers every item with; nil: what the store says.
	refuse atomic.Pointer[streamResult]
}

func newDoor(t *testing.T, r *fakeRouter, addr string) *door {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	d := &door{fakeRouter: r, addr: ln.Addr().String(), health: health.NewServer()}
	srv := grpc.NewServer()
	pushmeshv1.RegisterPublishServiceServer(srv, d)
	grpc_health_v1.RegisterHealthServer(srv, d.health)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	d.stop = sync.OnceFunc(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.stop)
	return d
}

func (d *door) PublishStream(st publishStream) error {
	d.streams.Add(1)
	return d.fakeRouter.serve(st, d.refuse.Load)
}

func (r *fakeRouter) serve(st publishStream, refuse func() *streamResult) error {
	r.mu.Lock()
	r.streams++
	md := metadata.MD{}
	if r.inFlight != "" {
		md.Set(inFlightHeader, r.inFlight)
	}
	r.mu.Unlock()
	if err := st.SendHeader(md); err != nil {
		return err
	}
	for {
		req, err := st.Recv()
		if err != nil {
			return nil
		}
		if no := refuse(); no != nil {
			resp := &pushmeshv1.PublishStreamResponse{}
			for _, it := range req.GetBatch() {
				resp.Results = append(resp.Results, &streamResult{Ref: it.GetRef(), Code: no.GetCode(), RetryAfter: no.GetRetryAfter()})
			}
			if err := st.Send(resp); err != nil {
				return nil
			}
			continue
		}
		resp, broken := r.take(req)
		if broken {
			return status.Error(codes.Unavailable, "the test broke it")
		}
		if err := st.Send(resp); err != nil {
			return nil
		}
	}
}

func (r *fakeRouter) take(req *pushmeshv1.PublishStreamRequest) (resp *pushmeshv1.PublishStreamResponse, broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.most = max(r.most, len(req.GetBatch()))
	resp = &pushmeshv1.PublishStreamResponse{}
	for _, it := range req.GetBatch() {
		res := r.publish(string(req.GetProducerId()), it)
		if r.amend != nil {
			res = r.amend(res)
		}
		res.Ref = it.GetRef()
		resp.Results = append(resp.Results, res)
		if r.drop != nil && r.drop(it) {
			return nil, true
		}
	}
	return resp, false
}

func (r *fakeRouter) publish(id string, it *pushmeshv1.PublishStreamRequest_Item) *streamResult {
	if r.decide != nil {
		if res := r.decide(it); res != nil {
			return res
		}
	}
	topic, seq := it.GetMessage().GetTopic(), it.GetProducerSeq()
	if r.last[id] == nil {
		r.last[id] = map[string]uint64{}
	}
	key := id + topic + string(rune(seq))
	switch last := r.last[id][topic]; {
	case seq <= last:
		first := r.firsts[key]
		return &streamResult{Response: &pushmeshv1.PublishResponse{Seq: first.GetSeq(), Epoch: 1, Duplicate: true}}
	case seq > last+1:
		return &streamResult{Code: wirev1.Code_CODE_OUT_OF_ORDER}
	}
	r.last[id][topic] = seq
	r.logs[topic] = append(r.logs[topic], string(it.GetMessage().GetPayload()))
	resp := &pushmeshv1.PublishResponse{Seq: uint64(len(r.logs[topic])), Epoch: 1}
	r.firsts[key] = resp
	return &streamResult{Response: resp}
}

func (r *fakeRouter) log(topic string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.logs[topic]...)
}

func refusal(c Code, after time.Duration) *streamResult {
	return &streamResult{Code: wirev1.Code(c), RetryAfter: durationpb.New(after)}
}

func newTestProducer(t *testing.T, cfg ProducerConfig) *Producer {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff = time.Millisecond
	}
	p, err := NewProducer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

func flush(t *testing.T, p *Producer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Flush(ctx); err != nil {
		t.Fatal("flush: ", err)
	}
}

package publish

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// once is a stream with a single request.
type once struct {
	grpc.ServerStream
	ctx context.Context
	req *pushmeshv1.PublishStreamRequest
}

func (o *once) Context() context.Context { return o.ctx }
func (o *once) RecvMsg(into any) error {
	req := o.req
	if o.req = nil; req == nil {
		return io.EOF
	}
	return come(into, req)
}

// Of a batch that comes to a router without time, each message is answered once, and the low ones
// are refused with a time to come back; a numbered one stops those that follow it in its topic.
func TestALateRouterAnswersEachOfABatch(t *testing.T) {
	p, r := newPublisher(noop.NewTracerProvider())
	p.cfg.Admission = admission.New(admission.Config{Lag: func() float64 { return 0.75 }})
	s := NewService(p, nil, nil)
	stream := &once{ctx: t.Context(), req: &pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16)}}
	item := func(priority uint32, seq uint64) {
		stream.req.Batch = append(stream.req.Batch, &pushmeshv1.PublishStreamRequest_Item{
			Ref: uint64(len(stream.req.Batch)), ProducerSeq: seq, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Priority: priority},
		})
	}
	for priority := range uint32(10) {
		item(priority, 0)
	}
	item(0, 1)
	item(9, 2)
	// no message at all
	stream.req.Batch = append(stream.req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: 12})
	out := newAnswers()
	if err := s.read(stream, out); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	got := map[uint64]*pushmeshv1.PublishStreamResponse_Result{}
	for _, res := range answered(t, out) {
		if got[res.GetRef()] != nil {
			t.Errorf("%d is answered twice", res.GetRef())
		}
		got[res.GetRef()] = res
	}
	for ref := range uint64(13) {
		want := wirev1.Code_CODE_OK
		switch {
		case ref < 5 || ref == 10:
			want = wirev1.Code_CODE_OVERLOADED
		case ref == 11:
			want = wirev1.Code_CODE_OUT_OF_ORDER
		case ref == 12:
			want = wirev1.Code_CODE_INVALID_ARGUMENT
		}
		res := got[ref]
		if res.GetCode() != want || want == wirev1.Code_CODE_OVERLOADED && (res.GetRetryAfter().AsDuration() <= 0 || res.GetError() == "") {
			t.Errorf("%d: %v, want %v", ref, res, want)
		}
	}
	if len(r.bodies) != 5 || out.owed != 0 {
		t.Errorf("%d were routed; %d are owed", len(r.bodies), out.owed)
	}
	if n := testutil.ToFloat64(p.metrics.total[wirev1.Code_CODE_OVERLOADED]); n != 6 {
		t.Errorf("%v refusals counted", n)
	}
	s.Drain()
	stream.req = &pushmeshv1.PublishStreamRequest{Batch: []*pushmeshv1.PublishStreamRequest_Item{{Ref: 13, Message: &pushmeshv1.PublishRequest{Topic: "live/1"}}}}
	if err := s.read(stream, out); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if all := answered(t, out); len(all) != 1 || all[0].GetCode() != wirev1.Code_CODE_DRAINING {
		t.Errorf("while it stops: %v", all)
	}
}

// answered is what a client would read.
func answered(t *testing.T, out *answers) []*pushmeshv1.PublishStreamResponse_Result {
	t.Helper()
	all := &pushmeshv1.PublishStreamResponse{}
	refused, _ := out.take(all, nil)
	for _, r := range refused {
		if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(r, all); err != nil {
			t.Fatal(err)
		}
	}
	return all.GetResults()
}

// BenchmarkLateBatch says what it costs to refuse a message of a batch, without gRPC.
func BenchmarkLateBatch(b *testing.B) {
	p, _ := newPublisher(noop.NewTracerProvider())
	p.cfg.Admission = admission.New(admission.Config{Lag: func() float64 { return 0.7 }})
	s, out := NewService(p, nil, nil), newAnswers()
	req := &pushmeshv1.PublishStreamRequest{}
	for ref := range uint64(256) {
		req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 256)}})
	}
	data, err := codec.Codec{}.Marshal(req)
	if err != nil {
		b.Fatal(err)
	}
	var late []uint64
	b.ReportAllocs()
	for b.Loop() {
		var f codec.Frame
		if err := (codec.Codec{}).Unmarshal(data, &f); err != nil {
			b.Fatal(err)
		}
		if late, err = s.open(&f, req, late[:0]); err != nil || len(late) != 256 {
			b.Fatalf("%d are late: %v", len(late), err)
		}
		out.refuse(late, p.refuseLate("p", len(late)))
		out.refused, out.refusals = out.refused[:0], 0
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(late)), "ns/message")
}

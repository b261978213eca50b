package publish

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/codec"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// dial has a desk's service served, as a router does.
func dial(t *testing.T, d *desk) (*Service, pushmeshv1.PublishServiceClient) {
	t.Helper()
	s := NewService(d.Publisher, calendar{}, nil)
	srv := grpc.NewServer(grpc.ForceServerCodecV2(codec.Codec{}))
	pushmeshv1.RegisterPublishServiceServer(srv, s)
	pipe := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(pipe) }()
	conn, err := grpc.NewClient("passthrough:///router", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		srv.GracefulStop() // every handler has returned
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, pushmeshv1.NewPublishServiceClient(conn)
}

// calendar has one scheduled message.
type calendar struct{}

func (calendar) CancelScheduled(_ context.Context, id []byte, _ []string) error {
	if id[0] != 1 {
		return code.New(wirev1.Code_CODE_NOT_FOUND, "no such message")
	}
	return nil
}

// bounded is the context of calls.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// conversation is a producer's end of a stream.
type conversation struct {
	grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	t *testing.T
}

func converse(t *testing.T, client pushmeshv1.PublishServiceClient) *conversation {
	t.Helper()
	stream, err := client.PublishStream(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return &conversation{stream, t}
}

func (c *conversation) say(req *pushmeshv1.PublishStreamRequest) {
	c.t.Helper()
	if err := c.Send(req); err != nil {
		c.t.Fatal(err)
	}
}

// hear gives n results, in the order in which they came.
func (c *conversation) hear(n int) (all []*pushmeshv1.PublishStreamResponse_Result) {
	c.t.Helper()
	for len(all) < n {
		resp, err := c.Recv()
		if err != nil {
			c.t.Fatalf("after %d of %d results: %v", len(all), n, err)
		}
		all = append(all, resp.GetResults()...)
	}
	if len(all) > n {
		c.t.Fatalf("%d results, want %d", len(all), n)
	}
	return all
}

// A stream tells the producer its pace, and answers each message once, whether it came alone or in
// a batch; what is answered last is answered before the stream ends.
func TestAStreamAnswersEveryMessage(t *testing.T) {
	d := open(t, admission.Limits{Rate: 2000, InFlight: 700})
	_, client := dial(t, d)
	c := converse(t, client)
	header, err := c.Header()
	if err != nil || !slices.Equal(header.Get(HeaderInFlight), []string{"700"}) || !slices.Equal(header.Get(HeaderRate), []string{"2000"}) {
		t.Errorf("%v, %v", header, err)
	}
	id := bytes.Repeat([]byte{4}, 16)
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 1, ProducerId: id, ProducerSeq: 5, SettledSeq: 4, SentMsAgo: 70_000, Message: &pushmeshv1.PublishRequest{Topic: "orders/1"}})
	if r := c.hear(1)[0]; r.GetRef() != 1 || r.GetResponse().GetSeq() != 1 || r.GetResponse().GetEpoch() != 3 || len(r.GetResponse().GetMessageId()) != 16 {
		t.Errorf("%v", r)
	}
	if it := d.store.last(t); !bytes.Equal(it.GetProducerId(), id) || it.GetProducerSeq() != 5 || it.GetSettledSeq() != 4 || it.GetSentMsAgo() < 70_000 {
		t.Errorf("stored as %v", it)
	}
	batch := &pushmeshv1.PublishStreamRequest{}
	const most = 150
	for i := range uint64(most) {
		batch.Batch = append(batch.Batch, &pushmeshv1.PublishStreamRequest_Item{
			Ref: 100 + i, ProducerSeq: 6 + i, SettledSeq: 3, SentMsAgo: 90_000, Message: &pushmeshv1.PublishRequest{Topic: "orders/1"},
		})
	}
	c.say(batch)
	for i, r := range c.hear(most) {
		if r.GetRef() != uint64(100+i) || r.GetResponse().GetSeq() != uint64(2+i) {
			t.Fatalf("the %d. of a batch: %v", i, r)
		}
	}
	if it := d.store.last(t); !bytes.Equal(it.GetProducerId(), id) || it.GetProducerSeq() != 5+most || it.GetSettledSeq() != 3 || it.GetSentMsAgo() < 90_000 {
		t.Errorf("the stream's producer is %x, %v", id, it)
	}
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 2}) // nothing to publish is an error, not silence
	if r := c.hear(1)[0]; r.GetRef() != 2 || r.GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT || r.GetError() == "" {
		t.Errorf("%v", r)
	}
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 3, Message: &pushmeshv1.PublishRequest{Topics: []string{"live/1", "$no"}}})
	if r := c.hear(1)[0]; r.GetRef() != 3 || len(r.GetResponse().GetResults()) != 2 || r.GetResponse().GetResults()[1].GetCode() != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("%v", r)
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult {
		return &meshv1.AppendResult{Code: wirev1.Code_CODE_OVERLOADED, RetryAfterMs: 70}
	})
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 4, Message: &pushmeshv1.PublishRequest{Topic: "open/1"}})
	if r := c.hear(1)[0]; r.GetCode() != wirev1.Code_CODE_OVERLOADED || r.GetRetryAfter().AsDuration() != 70*time.Millisecond || r.GetResponse() != nil {
		t.Errorf("%v", r)
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult {
		return &meshv1.AppendResult{Duplicate: true, Scheduled: true}
	})
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 6, Message: &pushmeshv1.PublishRequest{Topic: "open/1"}})
	if r := c.hear(1)[0]; !r.GetResponse().GetDuplicate() || !r.GetResponse().GetScheduled() {
		t.Errorf("one that was scheduled before: %v", r)
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 5, Message: &pushmeshv1.PublishRequest{Topic: "open/last"}})
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	d.store.release(t, "open/last")
	if r := c.hear(1)[0]; r.GetRef() != 5 || r.GetResponse().GetSeq() != 1 {
		t.Errorf("%v", r)
	}
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	d.routes.mu.Lock()
	defer d.routes.mu.Unlock()
	if d.routes.corked != 0 {
		t.Errorf("corked %d times more than uncorked", d.routes.corked)
	}
}

// Where nothing limits producers they are told of no pace.
func TestAStreamWithoutLimits(t *testing.T) {
	_, client := dial(t, open(t, admission.Limits{}))
	c := converse(t, client)
	header, err := c.Header()
	if err != nil || len(header.Get(HeaderInFlight))+len(header.Get(HeaderRate)) > 0 {
		t.Errorf("%v, %v", header, err)
	}
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream without messages: %v", err)
	}
}

// Behind a numbered message that was refused for its producer's limits, its followers are refused
// as well, until it comes again.
func TestAStreamKeepsTheOrderOfWhatItRefuses(t *testing.T) {
	d := open(t, admission.Limits{InFlight: 1})
	_, client := dial(t, d)
	c := converse(t, client)
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	batch := func(first uint64, n int) *pushmeshv1.PublishStreamRequest {
		req := &pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16)}
		for i := range uint64(n) {
			req.Batch = append(req.Batch, &pushmeshv1.PublishStreamRequest_Item{
				Ref: first + i, ProducerSeq: first + i, Message: &pushmeshv1.PublishRequest{Topic: "orders/1"},
			})
		}
		return req
	}
	c.say(batch(1, 3))
	got := c.hear(2)
	d.store.waits(t, "orders/1")
	if got[0].GetRef() != 2 || got[0].GetCode() != wirev1.Code_CODE_RATE_LIMITED || got[0].GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("the second: %v", got[0])
	}
	if got[1].GetRef() != 3 || got[1].GetCode() != wirev1.Code_CODE_OUT_OF_ORDER {
		t.Errorf("the third: %v", got[1])
	}
	d.store.answers(nil)
	d.store.release(t, "orders/1")
	if r := c.hear(1)[0]; r.GetRef() != 1 || r.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("the first: %v", r)
	}
	c.say(batch(3, 1))
	if r := c.hear(1)[0]; r.GetCode() != wirev1.Code_CODE_OUT_OF_ORDER {
		t.Errorf("the third, before the second: %v", r)
	}
	c.say(batch(2, 1))
	if r := c.hear(1)[0]; r.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("the second again: %v", r)
	}
	c.say(batch(3, 1))
	if r := c.hear(1)[0]; r.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("the third again: %v", r)
	}
}

// A router that stops takes nothing more: what comes on an open stream is answered so, then the
// stream says so and ends, and new calls are refused. What was taken before is answered.
func TestARouterThatStopsAnswersWhatItTook(t *testing.T) {
	d := open(t, admission.Limits{})
	s, client := dial(t, d)
	c := converse(t, client)
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 1, Message: &pushmeshv1.PublishRequest{Topic: "orders/1"}})
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 2, Message: &pushmeshv1.PublishRequest{Topic: "live/1"}})
	c.hear(1)
	d.store.waits(t, "orders/1")
	s.Drain()
	c.say(&pushmeshv1.PublishStreamRequest{Ref: 3, Message: &pushmeshv1.PublishRequest{Topic: "live/1"}})
	d.store.answers(nil)
	if r := c.hear(1)[0]; r.GetRef() != 3 || r.GetCode() != wirev1.Code_CODE_DRAINING || r.GetRetryAfter().AsDuration() <= 0 {
		t.Errorf("what comes late: %v", r)
	}
	d.store.release(t, "orders/1")
	if r := c.hear(1)[0]; r.GetRef() != 1 || r.GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("what was taken: %v", r)
	}
	if _, err := c.Recv(); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("the stream ends with %v", err)
	}
	s.Drain() // twice is once
	if _, err := converse(t, client).Recv(); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("a new stream: %v", err)
	}
	if _, err := client.Publish(bounded(t), &pushmeshv1.PublishRequest{Topic: "live/1"}); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("a new call: %v", err)
	}
}

// A call is answered with what became of its message, or with why it was refused.
func TestCalls(t *testing.T) {
	d := open(t, admission.Limits{})
	_, client := dial(t, d)
	res, err := client.Publish(bounded(t), &pushmeshv1.PublishRequest{Topic: "orders/1"})
	if err != nil || res.GetSeq() != 1 || res.GetEpoch() != 3 || !bytes.Equal(res.GetMessageId(), d.store.last(t).GetMessageId()) {
		t.Errorf("%v, %v", res, err)
	}
	if res, err := client.Publish(bounded(t), &pushmeshv1.PublishRequest{Topic: "$no"}); code.Of(err) != wirev1.Code_CODE_FORBIDDEN {
		t.Errorf("%v, %v", res, err)
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	s := NewService(d.Publisher, calendar{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := s.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "orders/2"}); status.Code(err) != codes.Canceled {
		t.Errorf("a caller that went away: %v, %v", res, err)
	}
	d.store.release(t, "orders/2")
	for id, want := range map[string]wirev1.Code{
		string(bytes.Repeat([]byte{1}, 16)): wirev1.Code_CODE_OK, string(bytes.Repeat([]byte{2}, 16)): wirev1.Code_CODE_NOT_FOUND,
		"short": wirev1.Code_CODE_INVALID_ARGUMENT, "": wirev1.Code_CODE_INVALID_ARGUMENT,
	} {
		res, err := client.CancelScheduled(bounded(t), &pushmeshv1.CancelScheduledRequest{MessageId: []byte(id)})
		if code.Of(err) != want || (want == wirev1.Code_CODE_OK) != (res != nil) {
			t.Errorf("cancel %x: %v, %v", id, res, err)
		}
	}
}

// A trace that the call itself belongs to comes before the one that its message names; and a stream
// is one trace for all its messages where its producer says so, and none otherwise.
func TestWhoseTraceCounts(t *testing.T) {
	d := open(t, admission.Limits{})
	s := NewService(d.Publisher, nil, nil)
	own := "00-11111111111111111111111111111111-2222222222222222-01"
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(bytes.Repeat([]byte{0x11}, 16)), SpanID: trace.SpanID(bytes.Repeat([]byte{0x22}, 8)), TraceFlags: 1})
	plain := trace.ContextWithSpanContext(t.Context(), span) // of the server's instrumentation
	asked := metadata.NewIncomingContext(plain, metadata.Pairs("traceparent", own))
	for _, c := range []struct {
		ctx                   context.Context
		message, call, stream string
	}{
		{asked, parent, own, parent},
		{asked, "", own, own},
		{plain, parent, parent, parent},
		{plain, "", own, ""},
	} {
		if _, err := s.Publish(c.ctx, &pushmeshv1.PublishRequest{Topic: "orders/1", Traceparent: c.message}); err != nil {
			t.Fatal(err)
		}
		if got := d.store.last(t).GetTraceparent(); got != c.call {
			t.Errorf("a call: %q, want %q", got, c.call)
		}
		out := newAnswers()
		stream := &once{ctx: c.ctx, req: &pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Topic: "orders/2", Traceparent: c.message}}}
		if err := s.read(stream, out); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for out.owes() {
			<-out.wake
		}
		if got := d.store.last(t).GetTraceparent(); got != c.stream {
			t.Errorf("a stream: %q, want %q", got, c.stream)
		}
	}
}

func (a *answers) owes() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owed > 0
}

// A client that reads no answers is not read from: what it is owed is bounded. It goes on where it
// was once it reads.
func TestAClientThatReadsNothingIsNotRead(t *testing.T) {
	out := newAnswers()
	if waited, err := out.room(t.Context()); waited || err != nil {
		t.Fatalf("with nothing unread: %v, %v", waited, err)
	}
	refs := make([]uint64, maxResults+10)
	for i := range refs {
		refs[i] = uint64(i)
	}
	out.refuse(refs, &Result{Code: wirev1.Code_CODE_OVERLOADED, Error: "no", RetryAfter: time.Second})
	for ref := len(refs); ref < maxAnswers; ref++ {
		out.expect()
		out.Published(uint64(ref), &Result{})
		if ref < maxAnswers-1 {
			if waited, err := out.room(t.Context()); waited || err != nil {
				t.Fatalf("with %d unread: %v, %v", ref, waited, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if waited, err := out.room(ctx); !waited || !errors.Is(err, context.Canceled) {
		t.Fatalf("with %d unread: %v, %v", maxAnswers, waited, err)
	}
	went := make(chan bool)
	go func() {
		waited, _ := out.room(t.Context())
		went <- waited
	}()
	read := &reader{ctx: t.Context(), got: map[uint64]int{}}
	ended := make(chan error)
	go func() { ended <- out.send(read) }()
	<-went // there is room again before the stream ends
	out.finish()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for ref := range uint64(maxAnswers) {
		if read.got[ref] != 1 {
			t.Fatalf("%d is answered %d times", ref, read.got[ref])
		}
	}
	if read.largest > maxResults || read.largest < maxResults {
		t.Errorf("%d answers at once, want %d", read.largest, maxResults)
	}
	out = newAnswers()
	out.expect()
	out.expect()
	out.Published(1, &Result{})
	out.refuse([]uint64{2}, &Result{Code: wirev1.Code_CODE_OVERLOADED})
	go func() { ended <- out.send(read) }()
	<-out.free // who waits for room is told of any answer that goes
	out.Published(3, &Result{})
	out.finish()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	out = newAnswers()
	out.expect()
	out.Published(1, &Result{})
	if err := out.send(&reader{ctx: t.Context(), err: errors.New("broken")}); err == nil {
		t.Error("a broken stream is written to")
	}
	out.refuse([]uint64{1}, &Result{Code: wirev1.Code_CODE_OVERLOADED})
	if err := out.send(&reader{ctx: t.Context(), err: errors.New("broken")}); err == nil {
		t.Error("a broken stream is written to")
	}
	if err := newAnswers().send(&reader{ctx: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("a stream that is over: %v", err)
	}
}

// reader is a client that notes what it is sent.
type reader struct {
	publishStream
	ctx     context.Context
	got     map[uint64]int
	largest int
	err     error
}

func (r *reader) Context() context.Context { return r.ctx }

func (r *reader) SendMsg(m any) error {
	if r.err != nil {
		return r.err
	}
	data, err := codec.Codec{}.Marshal(m)
	if err != nil {
		return err
	}
	resp := &pushmeshv1.PublishStreamResponse{}
	if err := (codec.Codec{}).Unmarshal(data, resp); err != nil {
		return err
	}
	return r.Send(resp)
}

func (r *reader) Send(resp *pushmeshv1.PublishStreamResponse) error {
	if r.err != nil {
		return r.err
	}
	if len(resp.GetResults()) == 0 {
		return errors.New("an empty response")
	}
	for _, one := range resp.GetResults() {
		r.got[one.GetRef()]++
	}
	r.largest = max(r.largest, len(resp.GetResults()))
	return nil
}

// While messages of one request are taken, their answers are sent by 64; the last ones go when all
// are taken.
func TestAnswersOfARequestGoTogether(t *testing.T) {
	out := newAnswers()
	woken := func() bool {
		select {
		case <-out.wake:
			return true
		default:
			return false
		}
	}
	publish := func(n int) {
		for range n {
			out.expect()
			out.Published(1, &Result{})
		}
	}
	publish(1)
	if !woken() {
		t.Error("an answer waits for nothing")
	}
	out.take(&pushmeshv1.PublishStreamResponse{}, nil)
	out.cork()
	publish(corkedMost - 1)
	if woken() {
		t.Error("answers go one by one")
	}
	publish(1)
	if !woken() {
		t.Error("answers of a large request wait for its end")
	}
	publish(1)
	out.uncork()
	if !woken() {
		t.Error("the last answer is not sent")
	}
	publish(1)
	if !woken() {
		t.Error("it is corked for ever")
	}
}

// A router knows how long requests wait for their turn, but for those that their own client held
// up.
func TestHowLongRequestsWaitIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		limits admission.Limits
		least  time.Duration // of the longest wait
		most   time.Duration
	}{
		"nothing is refused":    {admission.Limits{}, 50 * time.Millisecond, time.Hour},
		"refusals are forgiven": {admission.Limits{Rate: 1}, 50 * time.Millisecond, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := NewService(limitedTo(c.limits), nil, nil)
			s.publisher.cfg.Routes = slow{s.publisher.cfg.Routes}
			var longest time.Duration
			told := 0
			s.publisher.cfg.Waited = func(d time.Duration) {
				longest = max(longest, d)
				told++
			}
			const n = 20
			<-time.After(time.Second)
			if err := s.read(&paced{ctx: t.Context(), n: n}, newAnswers()); !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if told != n || longest < c.least || longest > c.most {
				t.Errorf("%s: of %d requests %d waits are told, the longest of %v", name, n, told, longest)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := NewService(limitedTo(admission.Limits{Rate: 100, InFlight: 10}), nil, nil)
		var longest time.Duration
		s.publisher.cfg.Waited = func(d time.Duration) { longest = max(longest, d) }
		readWhole(t, s, &rude{ctx: t.Context(), until: time.Now().Add(20 * time.Second)})
		if longest > 0 {
			t.Errorf("a client that ignores refusals: %v are counted as this router's", longest)
		}
	})
}

// slow takes five milliseconds for each request.
type slow struct{ Routes }

func (s slow) Cork() { <-time.After(5 * time.Millisecond) }

// paced is a stream with a request each millisecond.
type paced struct {
	grpc.ServerStream
	ctx context.Context
	n   int
}

func (p *paced) Context() context.Context { return p.ctx }
func (p *paced) RecvMsg(into any) error {
	if p.n--; p.n < 0 {
		return io.EOF
	}
	<-time.After(time.Millisecond)
	return come(into, &pushmeshv1.PublishStreamRequest{Message: &pushmeshv1.PublishRequest{Topic: "live/1"}})
}

// Limits are per producer, so who it is must not depend on how it comes: the port of its host is no
// part of it, and neither is a token that is none.
func TestProducersWithoutAName(t *testing.T) {
	at := func(addr net.Addr, md ...string) context.Context {
		return metadata.NewIncomingContext(peer.NewContext(t.Context(), &peer.Peer{Addr: addr}), metadata.Pairs(md...))
	}
	pipe := &net.UnixAddr{Name: "/run/x", Net: "unix"}
	for want, ctx := range map[string]context.Context{
		"host:unknown": t.Context(), "host:/run/x": at(pipe), "host:::1": at(&net.TCPAddr{IP: net.IPv6loopback, Port: 1}),
		"host:10.0.0.1": at(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, "authorization", "Bearer ", "authorization", "Basic x"),
	} {
		if got := producer(ctx); got != want || Caller(ctx) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := producer(peer.NewContext(t.Context(), &peer.Peer{})); got != "host:unknown" {
		t.Errorf("a peer without an address: %q", got)
	}
	a, b := producer(at(pipe, "authorization", "Bearer a")), producer(at(pipe, "authorization", "Bearer b"))
	if a == b || len(a) != len("token:")+32 {
		t.Errorf("two tokens: %q and %q", a, b)
	}
	if it := (&meshv1.ClientPublish_Item{ClientId: "c"}); client(it) != "client:c" || from(it) != "client:c" {
		t.Error("a client without a user has no name")
	}
	if client(&meshv1.ClientPublish_Item{User: "u", ClientId: "c"}) != "user:u" || from(&meshv1.ClientPublish_Item{User: "u", ClientId: "c"}) != "u" {
		t.Error("a user's messages have another name")
	}
}

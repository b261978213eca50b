package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/publish"
)

// pipe is one PublishStream with its answers by ref.
type pipe struct {
	tb     testing.TB
	stream grpc.BidiStreamingClient[pushmeshv1.PublishStreamRequest, pushmeshv1.PublishStreamResponse]
	got    map[uint64]*pushmeshv1.PublishStreamResponse_Result
}

func openPipe(tb testing.TB, m *mesh) *pipe {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	tb.Cleanup(cancel)
	stream, err := m.pub.PublishStream(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return &pipe{tb: tb, stream: stream, got: map[uint64]*pushmeshv1.PublishStreamResponse_Result{}}
}

func (p *pipe) send(req *pushmeshv1.PublishStreamRequest) {
	p.tb.Helper()
	if err := p.stream.Send(req); err != nil {
		p.tb.Fatal(err)
	}
}

// answers reads until n refs are answered; a second answer for a ref is a fault.
func (p *pipe) answers(n int) {
	p.tb.Helper()
	for len(p.got) < n {
		resp, err := p.stream.Recv()
		if err != nil {
			p.tb.Fatalf("after %d of %d answers: %v", len(p.got), n, err)
		}
		for _, r := range resp.GetResults() {
			if p.got[r.GetRef()] != nil {
				p.tb.Fatalf("ref %d answered twice", r.GetRef())
			}
			p.got[r.GetRef()] = r
		}
	}
}

func item(ref uint64, topic string) *pushmeshv1.PublishStreamRequest_Item {
	return &pushmeshv1.PublishStreamRequest_Item{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: topic, Payload: fmt.Append(nil, ref)}}
}

func TestStreamKeepsTheOrderOfATopic(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/#")
	p := openPipe(t, m)
	const n = 5000
	for ref := uint64(1); ref <= n; {
		var batch []*pushmeshv1.PublishStreamRequest_Item
		for ; len(batch) < 37 && ref <= n; ref++ {
			batch = append(batch, item(ref, fmt.Sprintf("room/%d", ref%7)))
		}
		p.send(&pushmeshv1.PublishStreamRequest{Batch: batch})
	}
	p.send(&pushmeshv1.PublishStreamRequest{Ref: n + 1, Message: &pushmeshv1.PublishRequest{Topic: "room/+"}})
	if err := p.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	p.answers(n + 1)
	if _, err := p.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: %v", err)
	}
	if c := p.got[n+1].GetCode(); c != wirev1.Code_CODE_BAD_TOPIC {
		t.Errorf("bad topic: %v", c)
	}
	for room := range uint64(7) {
		topic := fmt.Sprintf("room/%d", room)
		want := int(n-room)/7 + 1
		if room == 0 {
			want-- // there is no ref 0
		}
		var last uint64
		for i, d := range e.got(topic, want) {
			var ref uint64
			if _, err := fmt.Sscan(string(decode(t, d).GetPayload()), &ref); err != nil {
				t.Fatal(err)
			}
			if ref <= last || d.GetSeq() != uint64(i+1) || p.got[ref].GetResponse().GetSeq() != d.GetSeq() {
				t.Fatalf("%s: delivery %d is ref %d with seq %d after ref %d", topic, i, ref, d.GetSeq(), last)
			}
			last = ref
		}
	}
}

// What a producer says of a number reaches the store, in a batch and alone; what can't be is
// refused.
func TestWhatAProducerSaysOfItsNumbersReachesTheStore(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	came := map[uint64]*meshv1.AppendItem{} // by number
	m.store.set(func(s *fakeStore) { s.saw = func(it *meshv1.AppendItem) { came[it.GetProducerSeq()] = it } })
	p := openPipe(t, m)
	said := item(1, "room/1")
	said.ProducerSeq, said.SettledSeq, said.SentMsAgo = 4, 3, 90_000
	plain := item(2, "room/1")
	plain.ProducerSeq = 5
	wrong := item(3, "room/1")
	wrong.ProducerSeq, wrong.SettledSeq = 6, 6
	p.send(&pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16), Batch: []*pushmeshv1.PublishStreamRequest_Item{said, plain, wrong}})
	alone := item(4, "room/1")
	p.send(&pushmeshv1.PublishStreamRequest{Ref: 4, Message: alone.GetMessage(), ProducerSeq: 7, SettledSeq: 6, SentMsAgo: 5_000})
	p.answers(4)
	if c := p.got[3].GetCode(); c != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Errorf("a number that is settled: %v", p.got[3])
	}
	m.store.set(func(*fakeStore) {
		for n, want := range map[uint64][2]uint64{4: {3, 90_000}, 5: {0, 0}, 7: {6, 5_000}} {
			if got := came[n]; got.GetSettledSeq() != want[0] || got.GetSentMsAgo() < want[1] || got.GetSentMsAgo() > want[1]+uint64(patience.Milliseconds()) {
				t.Errorf("number %d came as %v, want settled_seq %d and sent_ms_ago %d", n, got, want[0], want[1])
			}
		}
		if came[6] != nil {
			t.Errorf("the store was asked for %v", came[6])
		}
	})
}

func TestStreamTellsItsPace(t *testing.T) {
	t.Parallel()
	m := startMesh(t, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 500, 40 })
	m.another(t, "r2")
	p := openPipe(t, m)
	md, err := p.stream.Header()
	if err != nil {
		t.Fatal(err)
	}
	if r, f := md.Get(publish.HeaderRate), md.Get(publish.HeaderInFlight); fmt.Sprint(r, f) != "[250] [20]" {
		t.Errorf("rate %v, in flight %v", r, f)
	}
}

func TestProducerBeyondItsLimitIsRefusedAtOnce(t *testing.T) {
	m := startMesh(t, func(s *Settings) { s.ProducerRate, s.ProducerInFlight = 100, 10 })
	gate := make(chan struct{})
	m.store.set(func(s *fakeStore) { s.gate = gate })
	p := openPipe(t, m)
	for ref := range uint64(30) {
		p.send(&pushmeshv1.PublishStreamRequest{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "room/1"}})
	}
	p.answers(20) // those beyond ten are refused while the ten still wait for the store
	for ref, r := range p.got {
		if ref < 10 || r.GetCode() != wirev1.Code_CODE_RATE_LIMITED || r.GetRetryAfter().AsDuration() <= 0 {
			t.Fatalf("ref %d: %v", ref, r)
		}
	}
	_, err := m.pub.Publish(t.Context(), &pushmeshv1.PublishRequest{Topic: "room/1"})
	if e := code.From(err); e.Code != wirev1.Code_CODE_RATE_LIMITED || e.RetryAfter <= 0 {
		t.Errorf("unary: %v", err)
	}
	close(gate)
	p.answers(30)
	for ref := range uint64(10) {
		if p.got[ref].GetCode() != wirev1.Code_CODE_OK {
			t.Errorf("ref %d: %v", ref, p.got[ref])
		}
	}
}

func TestPlannedStopAnswersWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	m := startMesh(t, nil)
	e := startEdge(t, m.nats.ClientURL(), "a", "r1")
	e.want("room/1")
	gate := make(chan struct{})
	m.store.set(func(s *fakeStore) { s.gate = gate })
	p := openPipe(t, m)
	const n = 200
	for ref := range uint64(n) {
		p.send(&pushmeshv1.PublishStreamRequest{Ref: ref, Message: &pushmeshv1.PublishRequest{Topic: "room/1"}})
	}
	eventually(t, "all are under way", func() error {
		if _, text := m.metric(t, "pushmesh_router_append_in_flight_messages"); text != fmt.Sprint(n) {
			return errors.New(text)
		}
		return nil
	})
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- m.router.Stop(ctx)
	}()
	eventually(t, "not ready", func() error {
		if ok, _ := m.readyz(t); ok {
			return errors.New("ready")
		}
		return nil
	})
	p.send(&pushmeshv1.PublishStreamRequest{Ref: n, Message: &pushmeshv1.PublishRequest{Topic: "room/1"}})
	p.answers(1)
	if c := p.got[n].GetCode(); c != wirev1.Code_CODE_DRAINING {
		t.Fatalf("a new message during the drain: %v", c)
	}
	close(gate)
	p.answers(n + 1)
	for ref := range uint64(n) {
		if p.got[ref].GetCode() != wirev1.Code_CODE_OK {
			t.Fatalf("ref %d: %v", ref, p.got[ref])
		}
	}
	if _, err := p.stream.Recv(); code.Of(err) != wirev1.Code_CODE_DRAINING {
		t.Errorf("end of the stream: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if ds := e.got("room/1", n); len(ds) != n {
		t.Errorf("%d deliveries", len(ds))
	}
	eventually(t, "leaving", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.leaving {
			return errors.New("not told")
		}
		return nil
	})
}

// metric reads one sample without labels.
func (m *mesh) metric(tb testing.TB, name string) (bool, string) {
	tb.Helper()
	body := m.get(tb, "/metrics")
	for line := range bytes.Lines(body) {
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return true, string(bytes.TrimSpace(value))
		}
	}
	return false, ""
}

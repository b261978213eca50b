package firehose

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestFramesAreWhatTheAPISays(t *testing.T) {
	topics, payloads := []string{"room/1", "room/22"}, [][]byte{[]byte("aaaaaaaa"), make([]byte, 300)}
	f := newFrame(topics, payloads)
	for _, first := range []uint64{0, 1, 127, 128, 1 << 20, maxNumber - 8} {
		f.number(first)
		copy(f.payloads[0], "now12345")
		req := &pushmeshv1.PublishStreamRequest{}
		if err := proto.Unmarshal(f.bytes, req); err != nil {
			t.Fatal(err)
		}
		if len(req.GetBatch()) != 2 {
			t.Fatalf("%v", req)
		}
		for i, it := range req.GetBatch() {
			if it.GetRef() != first+uint64(i) || it.GetMessage().GetTopic() != topics[i] || len(it.GetMessage().GetPayload()) != len(payloads[i]) {
				t.Fatalf("%d: %v", first, it)
			}
		}
		if string(req.GetBatch()[0].GetMessage().GetPayload()) != "now12345" {
			t.Fatalf("stamp: %q", req.GetBatch()[0].GetMessage().GetPayload())
		}
	}
}

func TestResultsAreRead(t *testing.T) {
	b, err := proto.Marshal(&pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{
		{Ref: 300, Response: &pushmeshv1.PublishResponse{MessageId: []byte("x"), Seq: 7, Epoch: 9}},
		{Ref: 0, Code: wirev1.Code_CODE_OVERLOADED, Error: "full"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		ref  uint64
		code wirev1.Code
		text string
	}
	var got []result
	if err := Results(b, func(ref uint64, code wirev1.Code, text []byte) error {
		got = append(got, result{ref, code, string(text)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != (result{ref: 300}) || got[1] != (result{0, wirev1.Code_CODE_OVERLOADED, "full"}) {
		t.Fatalf("%v", got)
	}
	if err := Results(b[:len(b)-1], func(uint64, wirev1.Code, []byte) error { return nil }); !errors.Is(err, errAnswer) {
		t.Fatalf("cut off: %v", err)
	}
}

// What a hose must not take for success: a refusal, an answer for nothing, the same answer twice.
func TestAnswersAreChecked(t *testing.T) {
	answer := func(results ...*pushmeshv1.PublishStreamResponse_Result) []byte {
		b, err := proto.Marshal(&pushmeshv1.PublishStreamResponse{Results: results})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ok := func(ref uint64) *pushmeshv1.PublishStreamResponse_Result {
		return &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Response: &pushmeshv1.PublishResponse{}}
	}
	hose := func() *Hose {
		h := &Hose{cfg: Config{Topics: []string{"a", "b"}}, room: make(chan *frame, 1), waiting: map[uint64]*sent{}}
		h.waiting[3] = &sent{frame: &frame{}, due: time.Now(), left: 2, got: make([]bool, 2)}
		return h
	}
	if h := hose(); h.take(answer(ok(7), ok(6))) != nil || len(h.waiting) != 0 || len(h.took) != 1 || h.Answered() != 2 || len(h.room) != 1 {
		t.Fatalf("two answers: %v", h.waiting)
	}
	h := hose()
	if err := h.take(answer(ok(7), &pushmeshv1.PublishStreamResponse_Result{Ref: 6, Code: wirev1.Code_CODE_OVERLOADED})); err != nil || h.Answered() != 1 || h.Refused() != 1 || len(h.waiting) != 0 {
		t.Fatalf("refused for now: %v, %d answered, %d refused", err, h.Answered(), h.Refused())
	}
	for name, bad := range map[string][]byte{
		"refusal": answer(&pushmeshv1.PublishStreamResponse_Result{Ref: 6, Code: wirev1.Code_CODE_INTERNAL}),
		"twice":   answer(ok(6), ok(6)), "unknown": answer(ok(8)), "after the last": answer(ok(6), ok(7), ok(7)),
	} {
		if hose().take(bad) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzResults(f *testing.F) {
	f.Add([]byte{0x0a, 0x02, 0x08, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		want := &pushmeshv1.PublishStreamResponse{}
		bad := proto.Unmarshal(b, want) != nil
		err := Results(b, func(uint64, wirev1.Code, []byte) error { return nil })
		if !bad && err != nil {
			t.Fatalf("refused: %v", err)
		}
	})
}

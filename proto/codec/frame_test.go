package codec

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// received is a frame of data that came in pieces of n bytes.
func received(data []byte, n int) *Frame {
	var pieces mem.BufferSlice
	for piece := range slices.Chunk(data, n) {
		pieces = append(pieces, mem.SliceBuffer(piece))
	}
	f := &Frame{}
	if err := (Codec{}).Unmarshal(pieces, f); err != nil {
		panic(err)
	}
	return f
}

func low(_ []byte, priority uint32) bool { return priority < 5 }

func TestThinDecodesWhatIsNotLate(t *testing.T) {
	item := func(ref, seq uint64, m *pushmeshv1.PublishRequest) *pushmeshv1.PublishStreamRequest_Item {
		return &pushmeshv1.PublishStreamRequest_Item{Ref: ref, ProducerSeq: seq, Message: m}
	}
	late := item(1<<40, 0, &pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 300), Priority: 4})
	kept := []*pushmeshv1.PublishStreamRequest_Item{
		item(2, 0, &pushmeshv1.PublishRequest{Topic: "live/2", Payload: []byte("high"), Priority: 5}),
		item(3, 1, &pushmeshv1.PublishRequest{Topic: "live/3"}), // numbered
		item(4, 0, nil),
		// not decoded by hand
		item(5, 0, &pushmeshv1.PublishRequest{Topic: "live/4", Priority: 9, Headers: map[string]string{"k": "v"}, Ttl: durationpb.New(time.Second)}),
	}
	req := &pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16)}
	for i, it := range kept {
		req.Batch = append(req.Batch, it, item(uint64(100+i), 0, &pushmeshv1.PublishRequest{
			Topics: []string{"live/5"}, Ttl: durationpb.New(time.Second), Payload: []byte("low"),
		}))
	}
	req.Batch = append(req.Batch, late)
	data := encoded(t, req)
	for _, n := range []int{1, 7, len(data)} {
		// which is overwritten
		f, got := received(data, n), &pushmeshv1.PublishStreamRequest{Ref: 7}
		refs, err := f.Thin(got, []uint64{99}, low)
		if want := []uint64{99, 100, 101, 102, 103, 1 << 40}; err != nil || !slices.Equal(refs, want) {
			t.Errorf("%v are late: %v", refs, err)
		}
		if want := (&pushmeshv1.PublishStreamRequest{ProducerId: req.GetProducerId(), Batch: kept}); !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if f.Len() != len(data) {
			t.Errorf("%d bytes", f.Len())
		}
		f.Free()
		if f.Len() != 0 {
			t.Error("a free frame has bytes")
		}
	}
	lone := &pushmeshv1.PublishStreamRequest{Ref: 1, Message: late.GetMessage()} // no batch
	got := &pushmeshv1.PublishStreamRequest{}
	if refs, err := received(encoded(t, lone), 1000).Thin(got, nil, low); err != nil || len(refs) > 0 || !proto.Equal(got, lone) {
		t.Errorf("%v, %v, %v", refs, got, err)
	}
}

// FuzzThin holds Thin to the generated code: what is late and what is kept are together what was
// sent, or it is no request.
func FuzzThin(f *testing.F) {
	f.Add(encoded(f, &pushmeshv1.PublishStreamRequest{ProducerId: []byte("id"), Batch: []*pushmeshv1.PublishStreamRequest_Item{
		{Ref: 1, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Payload: []byte("x")}},
		{Ref: 300, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Payload: []byte("x"), Priority: 7}},
		{Ref: 2, ProducerSeq: 1, Message: &pushmeshv1.PublishRequest{Topic: "live/1", Headers: map[string]string{"k": "v"}}},
	}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, rest := &pushmeshv1.PublishStreamRequest{}, &pushmeshv1.PublishStreamRequest{}
		broken := proto.Unmarshal(data, whole)
		refs, err := received(data, 1+len(data)/3).Thin(rest, nil, low)
		if broken != nil {
			return // what is late is not looked into
		}
		if err != nil {
			t.Fatalf("a request: %v", err)
		}
		if len(refs)+len(rest.GetBatch()) != len(whole.GetBatch()) {
			t.Fatalf("%d are late, %d are not, of %d", len(refs), len(rest.GetBatch()), len(whole.GetBatch()))
		}
		kept, next := rest.GetBatch(), 0
		for _, it := range whole.GetBatch() {
			switch {
			case next < len(refs) && it.GetRef() == refs[next] && it.GetProducerSeq() == 0 && it.Message != nil && it.GetMessage().GetPriority() < 5:
				next++
			case len(kept) > 0 && proto.Equal(it, kept[0]):
				kept = kept[1:]
			default:
				t.Fatalf("%v was neither late nor kept", it)
			}
		}
		whole.Batch, rest.Batch = nil, nil
		if !proto.Equal(whole, rest) {
			t.Errorf("%v, want %v", rest, whole)
		}
	})
}

func TestRefusalsAreResults(t *testing.T) {
	refs := []uint64{0, 1, 1 << 60}
	const code = wirev1.Code_CODE_OVERLOADED
	for _, wait := range []time.Duration{0, 70 * time.Millisecond, 90 * time.Second} {
		got := &pushmeshv1.PublishStreamResponse{}
		if err := proto.Unmarshal(AppendRefusals(nil, refs, code, "late", wait), got); err != nil {
			t.Fatal(err)
		}
		want := &pushmeshv1.PublishStreamResponse{}
		for _, ref := range refs {
			want.Results = append(want.Results, &pushmeshv1.PublishStreamResponse_Result{Ref: ref, Code: code, Error: "late", RetryAfter: durationpb.New(wait)})
		}
		if !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

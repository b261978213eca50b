package codec

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// some are the messages on the path of a durable publish.
var some = []proto.Message{
	&meshv1.AppendRequest{}, &meshv1.AppendResponse{}, &meshv1.ReadLogResponse{},
	&pushmeshv1.PublishStreamRequest{}, &pushmeshv1.PublishStreamResponse{},
}

// drawn fills a message by its descriptor, with lists and messages inside of it.
func drawn(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !rapid.Bool().Draw(t, string(f.Name())) {
			continue
		}
		switch {
		case f.IsMap() || f.Kind() == protoreflect.MessageKind && depth == 0:
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			for range rapid.IntRange(0, 4).Draw(t, "n") {
				drawn(t, m.Mutable(f).List().AppendMutable().Message(), depth-1)
			}
		case f.IsList():
			m.Mutable(f).List().Append(scalar(t, f))
		case f.Kind() == protoreflect.MessageKind:
			drawn(t, m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(t, f))
		}
	}
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.String().Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "bytes"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32().Draw(t, "enum")))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(rapid.Uint32().Draw(t, "uint32"))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(rapid.Float32().Draw(t, "float"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	default:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	}
}

func encoded(t interface{ Fatal(...any) }, m proto.Message) []byte {
	out, err := Codec{}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Free()
	return out.Materialize()
}

// Whatever is encoded here, the generated code decodes to the same; and the other way round.
func TestCodecAgreesWithGeneratedCode(t *testing.T) {
	for _, kind := range some {
		t.Run(string(kind.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := kind.ProtoReflect().New()
				drawn(t, want, 3)
				got := kind.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(encoded(t, want.Interface()), got); err != nil || !proto.Equal(want.Interface(), got) {
					t.Fatalf("encoded: %v\n%v\n%v", err, want, got)
				}
				b, err := proto.Marshal(want.Interface())
				if err != nil {
					t.Fatal(err)
				}
				got = kind.ProtoReflect().New().Interface()
				if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, got); err != nil || !proto.Equal(want.Interface(), got) {
					t.Fatalf("decoded: %v\n%v\n%v", err, want, got)
				}
			})
		})
	}
}

// A field that was added and is not known to the decoder would make it slower. Add it there, then
// here.
func TestEveryFieldIsKnown(t *testing.T) {
	for m, n := range map[proto.Message]int{
		&meshv1.AppendRequest{}: 1, &meshv1.AppendItem{}: 19, &meshv1.AppendResponse{}: 1, &meshv1.AppendResult{}: 10,
		&meshv1.ReadLogResponse{}: 4, &meshv1.LogRecord{}: 3, &pushmeshv1.PublishStreamRequest_Item{}: 5,
	} {
		if d := m.ProtoReflect().Descriptor(); d.Fields().Len() != n {
			t.Errorf("%s has %d fields, %d are decoded by hand", d.Name(), d.Fields().Len(), n)
		}
	}
}

// The generated encoders don't check that a text is UTF-8: textsValid does. A text that was added
// and is not known there would be sent as it is, and what has it refused by the receiver. Add it,
// then here.
func TestEveryTextIsKnown(t *testing.T) {
	known := map[protoreflect.FullName]bool{
		"pushmesh.internal.v1.AppendItem.topic": true, "pushmesh.internal.v1.AppendItem.dedupe_key": true,
		"pushmesh.internal.v1.AppendItem.traceparent": true, "pushmesh.internal.v1.AppendResult.error": true,
		"pushmesh.v1.PublishStreamResponse.Result.error": true, "pushmesh.v1.TopicResult.error": true,
	}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.Kind() == protoreflect.StringKind && !known[f.FullName()] {
				t.Errorf("%s is not checked", f.FullName())
			}
			if f.Message() != nil {
				walk(f.Message())
			}
		}
	}
	for _, m := range some {
		if _, ok := m.(generated); ok {
			walk(m.ProtoReflect().Descriptor())
		}
	}
}

// What generated code keeps or refuses, and how it does so, is kept and refused here.
func TestWhatIsNotExpected(t *testing.T) {
	b, err := proto.Marshal(&meshv1.AppendRequest{Items: []*meshv1.AppendItem{{Ref: 1, Topic: "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	unknown := append(bytes.Clone(b), 0xf8, 0x07, 0x01) // field 127
	m := &meshv1.AppendRequest{}
	if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(unknown)}, m); err != nil || m.GetItems()[0].GetTopic() != "a" || len(m.ProtoReflect().GetUnknown()) != 3 {
		t.Fatalf("%v %v", err, m)
	}
	if again := encoded(t, m); !bytes.Equal(again, unknown) {
		t.Fatalf("%x, was %x", again, unknown)
	}
	for name, bad := range map[string]proto.Message{
		"not UTF-8":        &meshv1.AppendRequest{Items: []*meshv1.AppendItem{{Topic: "\xff"}}},
		"result not UTF-8": &meshv1.AppendResponse{Results: []*meshv1.AppendResult{{Error: "\xff"}}},
		"answer not UTF-8": &pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{{Error: "\xff"}}},
		"topic's not UTF-8": &pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{
			{Response: &pushmeshv1.PublishResponse{Results: []*pushmeshv1.TopicResult{{Error: "\xff"}}}},
		}},
	} {
		if _, err := (Codec{}).Marshal(bad); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
	retry := &pushmeshv1.PublishStreamResponse{Results: []*pushmeshv1.PublishStreamResponse_Result{
		{Ref: 1, Code: wirev1.Code_CODE_OVERLOADED, RetryAfter: durationpb.New(5)},
		{Ref: 2, Response: &pushmeshv1.PublishResponse{Results: []*pushmeshv1.TopicResult{{Seq: 1}}}},
	}}
	got := &pushmeshv1.PublishStreamResponse{}
	if err := proto.Unmarshal(encoded(t, retry), got); err != nil || !proto.Equal(retry, got) {
		t.Fatalf("%v %v", err, got)
	}
	for _, v := range []any{"text", nil} {
		if _, err := (Codec{}).Marshal(v); err == nil {
			t.Errorf("%v was encoded", v)
		}
		if err := (Codec{}).Unmarshal(nil, v); err == nil {
			t.Errorf("%v was decoded", v)
		}
	}
}

// A message with headers, a TTL or features is not decoded by hand: it alone, and not those beside
// it in a batch.
func TestUnusualMessagesCostThemselves(t *testing.T) {
	decode := func(n int) float64 {
		want, got := batch(64, n), &pushmeshv1.PublishStreamRequest{}
		data := mem.BufferSlice{mem.SliceBuffer(encoded(t, want))}
		if err := (Codec{}).Unmarshal(data, got); err != nil || !proto.Equal(want, got) {
			t.Fatalf("%d of 64 are unusual: %v\n%v", n, err, got)
		}
		return testing.AllocsPerRun(10, func() {
			if err := (Codec{}).Unmarshal(data, got); err != nil {
				t.Error(err)
			}
		})
	}
	none, one, all := decode(0), decode(1), decode(64)
	if each := (all - none) / 64; one-none > 1.5*each {
		t.Errorf("a batch of 64 takes %.0f allocations, with one unusual message %.0f, where each of 64 such adds %.1f", none, one, each)
	}
}

func FuzzDecode(f *testing.F) {
	seeds := []proto.Message{
		&meshv1.AppendRequest{Items: []*meshv1.AppendItem{{Ref: 300, Topic: "room/1", Body: []byte("x"), PublishedAt: 7, ProducerSeq: 1}}},
		&meshv1.AppendResponse{Results: []*meshv1.AppendResult{{Ref: 1, Code: 10, Error: "full", RetryAfterMs: 50}}},
		&meshv1.ReadLogResponse{Epoch: 1, Head: 2, Oldest: 1, Records: []*meshv1.LogRecord{{Seq: 1, Body: []byte("y")}}},
		&pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16), Batch: []*pushmeshv1.PublishStreamRequest_Item{
			{Ref: 1, ProducerSeq: 9, Message: &pushmeshv1.PublishRequest{Topic: "room/1", Payload: []byte("z"), Priority: 3}},
		}},
	}
	for i, m := range seeds {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	b, err := proto.Marshal(batch(3, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(3), b)
	// An item with a field that nobody knows between others, and one with two messages, of which
	// the second is merged into the first.
	f.Add(uint8(0), []byte{0x0a, 10, 0x08, 1, 0xf8, 0x07, 1, 0x12, 1, 'a', 0x08, 2})
	f.Add(uint8(3), []byte{0x2a, 12, 0x12, 3, 0x0a, 1, 'a', 0x12, 3, 0x12, 1, 'x', 0x08, 7})
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		kind := some[int(which)%len(some)].ProtoReflect()
		want, got := kind.New().Interface(), kind.New().Interface()
		wantErr := proto.Unmarshal(b, want)
		gotErr := Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(b))}, got)
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("%v, generated code %v", gotErr, wantErr)
		}
		if wantErr != nil {
			return
		}
		if !proto.Equal(want, got) {
			t.Fatalf("%v\nnot %v", got, want)
		}
		again := kind.New().Interface()
		if err := proto.Unmarshal(encoded(t, got), again); err != nil || !proto.Equal(want, again) {
			t.Fatalf("encoded: %v\n%v\nnot %v", err, again, want)
		}
	})
}

func BenchmarkAppendRequest(b *testing.B) {
	m := &meshv1.AppendRequest{}
	for i := range 64 {
		m.Items = append(m.Items, &meshv1.AppendItem{Ref: uint64(i), Topic: "room/17", Body: make([]byte, 290), MessageId: make([]byte, 16), PublishedAt: 1})
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &meshv1.AppendRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generated decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(wire, &meshv1.AppendRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, err := Codec{}.Marshal(m)
			if err != nil {
				b.Fatal(err)
			}
			out.Free()
		}
	})
	b.Run("generated encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := proto.Marshal(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppendResponse(b *testing.B) {
	m := &meshv1.AppendResponse{}
	for i := range 64 {
		m.Results = append(m.Results, &meshv1.AppendResult{Ref: uint64(i), Epoch: 1, Seq: uint64(i), MessageId: make([]byte, 16), PublishedAt: 1})
	}
	wire, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &meshv1.AppendResponse{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A batch of 64 messages with n that have headers, a TTL and features.
func BenchmarkPublishBatch(b *testing.B) {
	for _, n := range []int{0, 1, 64} {
		m := batch(64, n)
		wire, err := proto.Marshal(m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(n, " with headers"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, &pushmeshv1.PublishStreamRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprint(n, " with headers, generated"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(wire, &pushmeshv1.PublishStreamRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// batch is a request of some messages, the last n of which have headers, a TTL and features.
func batch(size, n int) *pushmeshv1.PublishStreamRequest {
	m := &pushmeshv1.PublishStreamRequest{ProducerId: make([]byte, 16)}
	for i := range size {
		it := &pushmeshv1.PublishRequest{Topic: "room/17", Payload: bytes.Repeat([]byte{byte(i)}, 256), DedupeKey: fmt.Sprint("key ", i)}
		if i >= size-n {
			it.Headers, it.Ttl = map[string]string{"kind": "chat", "from": "somebody"}, durationpb.New(time.Minute)
			it.Features = map[string]float64{"age": 3}
		}
		m.Batch = append(m.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(i), ProducerSeq: uint64(i + 1), Message: it})
	}
	return m
}

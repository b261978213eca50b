package intake

import (
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func rankRequest(n, features, dimensions int) *pushmeshv1.RankRequest {
	req := &pushmeshv1.RankRequest{}
	for i := range n {
		c := &pushmeshv1.Candidate{Id: fmt.Sprint("candidate-", i), Topic: "room/1", Priority: 3}
		if features > 0 {
			c.Features = map[string]float64{}
		}
		for f := range features {
			c.Features[fmt.Sprint("feature-", f)] = float64(f) + 0.5
		}
		for d := range dimensions {
			c.Vector = append(c.Vector, float32(d)+0.5)
		}
		if i%2 == 0 {
			c.PublishedAt = timestamppb.Now()
		}
		req.Candidates = append(req.Candidates, c)
	}
	return req
}

func requests() map[string]proto.Message {
	many := &pushmeshv1.PublishStreamRequest{}
	for i := range 20_000 {
		many.Batch = append(many.Batch, &pushmeshv1.PublishStreamRequest_Item{Ref: uint64(i), Message: &pushmeshv1.PublishRequest{Topic: "room/1", Payload: make([]byte, 50)}})
	}
	empty := &pushmeshv1.PublishStreamRequest{Batch: make([]*pushmeshv1.PublishStreamRequest_Item, 100_000)}
	for i := range empty.Batch {
		empty.Batch[i] = &pushmeshv1.PublishStreamRequest_Item{}
	}
	return map[string]proto.Message{
		"a ranking":        rankRequest(10_000, 3, 0),
		"many features":    rankRequest(2000, 20, 0),
		"vectors":          rankRequest(3000, 0, 256),
		"empty candidates": rankRequest(100_000, 0, 0),
		"a batch":          many,
		"an empty batch":   empty,
		"topics":           &pushmeshv1.PublishRequest{Topics: make([]string, 200_000)},
		"a payload":        &pushmeshv1.PublishRequest{Topic: "room/1", Payload: make([]byte, 4*mib)},
		"profiles":         &meshv1.RankJobRequest{Rank: rankRequest(5000, 5, 16)},
	}
}

func weighed(p proto.Message, data []byte) int64 {
	return plans{}.plan(p.ProtoReflect().Descriptor()).weigh(mem.BufferSlice{mem.SliceBuffer(data)})
}

// What a request is charged before it is decoded is about what it takes afterwards: two thirds of
// that at least, and not three times as much.
func TestWeightsAreAboutRight(t *testing.T) {
	for name, req := range requests() {
		data, err := proto.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		before := heap()
		decoded := req.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data, decoded); err != nil {
			t.Fatal(err)
		}
		took, guess := heap()-before, weighed(req, data)
		runtime.KeepAlive(decoded)
		runtime.KeepAlive(data)
		t.Logf("%s: %d bytes take %d, are charged %d", name, len(data), took, guess)
		if guess < took*2/3 || guess > 3*took {
			t.Errorf("%s: %d bytes take %d, and are charged %d", name, len(data), took, guess)
		}
	}
}

// FuzzWeigh: whatever comes has a weight, of at least the message itself, and not more than some
// hundreds of bytes for each of its own.
func FuzzWeigh(f *testing.F) {
	for _, req := range []proto.Message{rankRequest(2, 2, 3), &pushmeshv1.PublishRequest{Topic: "a", Headers: map[string]string{"k": "v"}}} {
		data, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x0b\x0b\x0b\x0b"))
	p := plans{}.plan((&pushmeshv1.RankRequest{}).ProtoReflect().Descriptor())
	f.Fuzz(func(t *testing.T, data []byte) {
		got := p.weigh(mem.BufferSlice{mem.SliceBuffer(data)})
		if got < p.size || got > p.size+int64(len(data))*600 {
			t.Errorf("%d bytes weigh %d", len(data), got)
		}
	})
}

func BenchmarkWeigh(b *testing.B) {
	for name, req := range requests() {
		data, err := proto.Marshal(req)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/weigh", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				weighed(req, data)
			}
		})
		b.Run(name+"/decode", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := proto.Unmarshal(data, req.ProtoReflect().New().Interface()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

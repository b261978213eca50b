package ranking

import (
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/candidates"
	"github.com/pushmesh/pushmesh/internal/score"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

var everything = score.Needs{ID: true, Topic: true, Features: true, Vector: true, Headers: true, Payload: true, PublishedAt: true}

// candidate of a message, as a compute node unpacks it, and what its bytes are reckoned to be.
func candidate(t testing.TB, needs score.Needs, m *exchange.Message) (*pushmeshv1.Candidate, *meshv1.PackedCandidates, int) {
	t.Helper()
	c := newConverter(needs)
	var out score.Candidate
	c.fill(&out, m)
	packed, err := candidates.Pack([]score.Candidate{out}, &needs)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := proto.Marshal(packed); err != nil || proto.Unmarshal(b, packed) != nil {
		t.Fatal(err)
	}
	all, err := candidates.Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	return candidates.Messages(all)[0], packed, c.bytes
}

func TestCandidateHasWhatIsNeeded(t *testing.T) {
	m := message(t, &wirev1.Message{
		Payload: []byte(`{}`), PublishedAt: 1_700_000_000_123_456, Id: []byte("0123456789abcdef"), Headers: map[string]string{"k": "v", "": ""}, Priority: 7, From: "u",
	}, &meshv1.MessageFeatures{Features: map[string]float64{"a": 1.5}, Vector: []float32{1, 2}})
	got, packed, bytes := candidate(t, everything, m)
	want := &pushmeshv1.Candidate{
		Id: "30313233-3435-3637-3839-616263646566", Topic: "shop/offers", Priority: 7, PublishedAt: &timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 123_456_000},
		Headers: map[string]string{"k": "v", "": ""}, Payload: []byte(`{}`), Features: map[string]float64{"a": 1.5}, Vector: []float32{1, 2},
	}
	if !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if size := proto.Size(packed); bytes < size || bytes > 2*size+perCandidate+together {
		t.Errorf("%d bytes, reckoned as %d", size, bytes)
	}
	if got, _, _ := candidate(t, score.Needs{}, m); !proto.Equal(got, &pushmeshv1.Candidate{Priority: 7}) {
		t.Error(got)
	}
}

// Whatever proto.Unmarshal reads, a candidate has, but for what a scorer would refuse; what it does
// not read does no harm, and is something that can be sent on.
func FuzzCandidate(f *testing.F) {
	body, err := wire.Body(&wirev1.Message{Payload: []byte("{}"), PublishedAt: 5, Id: make([]byte, 16), Headers: map[string]string{"a": "b"}, Priority: 3})
	if err != nil {
		f.Fatal(err)
	}
	features, err := proto.Marshal(&meshv1.MessageFeatures{Features: map[string]float64{"x": 1, "y": math.Inf(1)}, Vector: []float32{1, 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body, features)
	f.Add(append(body, body...), append(features, features...))
	f.Add([]byte{0x32, 0x04, 0x0a, 0x02, 0xff, 0xfe}, protowire.AppendFixed32(protowire.AppendTag(nil, 2, protowire.Fixed32Type), 1))
	f.Add([]byte{0x20, 0x05}, []byte{0x0a, 0x02, 0x12, 0x00})
	f.Fuzz(func(t *testing.T, body, features []byte) {
		m := &exchange.Message{Topic: "t", Frame: wire.AppendMessage(nil, "t", 1, body), Mesh: features}
		if m.Frame == nil {
			return
		}
		got, _, _ := candidate(t, everything, m)
		var b wirev1.Message
		var mesh meshv1.MessageFeatures
		if proto.Unmarshal(body, &b) != nil || proto.Unmarshal(features, &mesh) != nil {
			return
		}
		want := &pushmeshv1.Candidate{Topic: "t", Headers: b.GetHeaders(), Payload: b.GetPayload(), Vector: mesh.GetVector()}
		if at := timestamp(b.GetPublishedAt()); at.Set {
			want.PublishedAt = &timestamppb.Timestamp{Seconds: at.Seconds, Nanos: at.Nanos}
		}
		if h := hex.EncodeToString(b.GetId()); len(h) == 32 {
			want.Id = fmt.Sprint(h[:8], "-", h[8:12], "-", h[12:16], "-", h[16:20], "-", h[20:])
		}
		for name, v := range mesh.GetFeatures() {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				if want.Features == nil {
					want.Features = map[string]float64{}
				}
				want.Features[name] = v
			}
		}
		bad := func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }
		if len(want.GetVector()) > score.MaxDimensions || slices.ContainsFunc(want.GetVector(), bad) {
			want.Vector = nil
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

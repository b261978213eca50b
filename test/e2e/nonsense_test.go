package e2e

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

func frame(t *testing.T, ft wirev1.FrameType, m proto.Message) []byte {
	t.Helper()
	b, err := wire.Append(nil, ft, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whoever talks nonsense is told which, is cut off, and harms nobody.
func TestNonsenseFromClients(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	calm, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "calm"})
	hello := frame(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})

	big := make([]byte, wire.HeaderSize+64)
	wire.PutHeader(big, 2<<20, wirev1.FrameType_FRAME_TYPE_PUBLISH)
	unknown := []byte{0, 0, 0, 0x7e}
	for _, c := range []struct {
		name string
		send []byte
		want wirev1.Code
	}{
		{"2 MiB frame", append(bytes.Clone(hello), big...), wirev1.Code_CODE_FRAME_TOO_LARGE},
		{"unknown frame", append(bytes.Clone(hello), unknown...), wirev1.Code_CODE_UNKNOWN_FRAME},
		{"second Hello", append(bytes.Clone(hello), hello...), wirev1.Code_CODE_BAD_FRAME},
		{"body that is no protobuf", append(bytes.Clone(hello), 0, 0, 2, 3, 0xff, 0xff), wirev1.Code_CODE_BAD_FRAME},
		{"version 2", frame(t, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 2}), wirev1.Code_CODE_UNSUPPORTED},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := wireclient.Dial(t, m.EdgeAddr())
			client.Raw(c.send)
			for {
				ft, body, err := client.Next(wireclient.Patience)
				if err != nil {
					t.Fatalf("no Error frame: %v", err)
				}
				if ft != wirev1.FrameType_FRAME_TYPE_ERROR {
					continue
				}
				var e wirev1.Error
				if err := proto.Unmarshal(body, &e); err != nil {
					t.Fatal(err)
				}
				if e.GetCode() != c.want || e.GetRef() != 0 || e.GetMessage() == "" {
					t.Fatalf("got %v, want %v with a message and ref 0", &e, c.want)
				}
				break
			}
			client.Closed()
		})
	}
	for _, c := range []struct {
		name string
		send []byte
	}{
		{"garbage", []byte("\xde\xad\xbe\xef garbage")},
		{"frame before Hello", frame(t, wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{})},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := wireclient.Dial(t, m.EdgeAddr())
			client.Raw(c.send)
			client.Closed()
		})
	}
	calm.Send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	if pong := wireclient.Expect(calm, wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{}); pong.GetSentAt() != 7 {
		t.Fatalf("got %v", pong)
	}
}

// A request that can't be served is answered with its ref, and the connection goes on.
func TestBadRequestsKeepTheConnection(t *testing.T) {
	t.Parallel()
	m := harness.Start(t, harness.Options{})
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	for i, want := range []struct {
		sub  *wirev1.Subscribe
		code wirev1.Code
	}{
		{&wirev1.Subscribe{Filter: "a//b"}, wirev1.Code_CODE_BAD_TOPIC},
		{&wirev1.Subscribe{Filter: "a/#/b"}, wirev1.Code_CODE_BAD_TOPIC},
		{&wirev1.Subscribe{Filter: "a", Group: "g", Overflow: wirev1.Overflow_OVERFLOW_CONFLATE}, wirev1.Code_CODE_UNSUPPORTED},
		{&wirev1.Subscribe{Filter: "a", GroupKey: "topic"}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{&wirev1.Subscribe{Filter: "a", Where: "x > 1"}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{&wirev1.Subscribe{Filter: "a", RankTopK: 3}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{&wirev1.Subscribe{Filter: "room/a", Ack: true, Overflow: wirev1.Overflow_OVERFLOW_DROP_OLDEST}, wirev1.Code_CODE_UNSUPPORTED},
	} {
		want.sub.Id = uint32(i + 1)
		c.Send(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, want.sub)
		if e := c.Error(); e.GetCode() != want.code || e.GetRef() != want.sub.GetId() {
			t.Fatalf("%v: got %v", want.sub, e)
		}
	}
	for i, want := range []struct {
		claim *wirev1.Claim
		code  wirev1.Code
	}{
		{&wirev1.Claim{Resource: "a//b"}, wirev1.Code_CODE_BAD_TOPIC},
		{&wirev1.Claim{Resource: "r", Op: 77}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{&wirev1.Claim{Resource: "r", Op: wirev1.Claim_OP_RELEASE}, wirev1.Code_CODE_INVALID_ARGUMENT},
	} {
		want.claim.Id = uint32(50 + i)
		c.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, want.claim)
		if e := c.Error(); e.GetCode() != want.code || e.GetRef() != want.claim.GetId() {
			t.Fatalf("%v: got %v", want.claim, e)
		}
	}
	if sub := c.Subscribe(&wirev1.Subscribe{Id: 60, Filter: "room/fine"}); sub.GetId() != 60 {
		t.Fatalf("got %v", sub)
	}
}

// A position of an epoch that is gone is told apart from one that still holds.
func TestResumeFromAnEpochThatIsGone(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	for range 3 {
		m.Publish(t, "room/epoch", "x")
	}
	c, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	sub := c.Subscribe(&wirev1.Subscribe{
		Id: 1, Filter: "room/epoch", Ack: true,
		Positions: []*wirev1.Position{{Topic: "room/epoch", Epoch: 12345, Seq: 2}},
	})
	if sub.GetRecovered() {
		t.Fatalf("recovered from an epoch that never was: %v", sub)
	}
	c2, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{})
	sub = c2.Subscribe(&wirev1.Subscribe{
		Id: 1, Filter: "room/epoch", Ack: true,
		Positions: []*wirev1.Position{{Topic: "room/epoch", Epoch: sub.GetEpoch(), Seq: 2}},
	})
	if !sub.GetRecovered() || sub.GetMissed() != 0 {
		t.Fatalf("not recovered: %v", sub)
	}
	if msg := c2.Message(); msg.GetSeq() != 3 {
		t.Fatalf("got seq %d, want 3", msg.GetSeq())
	}
}

// Producers are told what is wrong, by gRPC code and by reason.
func TestNonsenseFromProducers(t *testing.T) {
	m := harness.Start(t, harness.Options{})
	api := pushmeshv1.NewPublishServiceClient(m.Router(t))
	for _, c := range []struct {
		name string
		req  *pushmeshv1.PublishRequest
		want wirev1.Code
	}{
		{"no topic", &pushmeshv1.PublishRequest{}, wirev1.Code_CODE_BAD_TOPIC},
		{"wildcard", &pushmeshv1.PublishRequest{Topic: "room/+"}, wirev1.Code_CODE_BAD_TOPIC},
		{"too large", &pushmeshv1.PublishRequest{Topic: "room/x", Payload: make([]byte, 300<<10)}, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		{"priority", &pushmeshv1.PublishRequest{Topic: "room/x", Priority: 10}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"features", &pushmeshv1.PublishRequest{Topic: "room/x", Features: map[string]float64{"": 1}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		{"the mesh's own", &pushmeshv1.PublishRequest{Topic: "$dead/x"}, wirev1.Code_CODE_FORBIDDEN},
	} {
		_, err := api.Publish(context.Background(), c.req)
		if got := code.Of(err); got != c.want {
			t.Errorf("%s: got %v (%v), want %v", c.name, got, err, c.want)
		}
	}
}

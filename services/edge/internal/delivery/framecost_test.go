package delivery

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
)

// taking takes everything that clients ask for, and answers when it is told to.
type taking struct {
	still
	answers []exchange.Event
}

func (m *taking) Join(conn exchange.Conn, sub uint32, _ string, _ bool, _ int) {
	m.answers = append(m.answers, exchange.Joined{Conn: conn, Sub: sub, Exact: true})
}

func (m *taking) Publish(conn exchange.Conn, _ string, id uint32, _ *meshv1.ClientPublish_Item) {
	m.answers = append(m.answers, exchange.Published{Conn: conn, ID: id, Result: &meshv1.ClientPublishReply_Result{Code: wirev1.Code_CODE_OK}})
}

func (m *taking) Claim(conn exchange.Conn, id uint32, op *meshv1.ClaimOp) {
	state := &wirev1.ClaimState{Resource: op.GetResource(), State: wirev1.ClaimState_STATE_FREE}
	m.answers = append(m.answers, exchange.Claimed{Conn: conn, ID: id, Result: &meshv1.ClaimResult{State: state}})
}

func (m *taking) answer() {
	for _, e := range m.answers {
		m.h.Event(e)
	}
	clear(m.answers)
	m.answers = m.answers[:0]
	for m.h.Work(1000) {
	}
}

func (m *taking) EndClaims(uint64) {}

// openToAll lets clients do everything in the namespace open.
func openToAll() func(topic string) *policy.Policy {
	return policy.NewTable([]*pushmeshv1.Namespace{{Prefix: "open", Policy: &pushmeshv1.Policy{ClientPublish: true, Claims: &pushmeshv1.ClaimPolicy{Clients: true}}}}).For
}

// askedFor are frames of a client, by what becomes of them: each may come again and again.
func askedFor(tb testing.TB) map[string][]byte {
	one := func(ft wirev1.FrameType, m proto.Message) []byte { return frameOf(tb, ft, m) }
	return map[string][]byte{
		"Ping":                     one(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7, LastRttUs: 300}),
		"Ack of an unknown topic":  one(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "none/1", Seq: 9}}}),
		"Ack of nothing un-ACKed":  one(wirev1.FrameType_FRAME_TYPE_ACK, &wirev1.Ack{Entries: []*wirev1.Ack_Entry{{Topic: "room/1", Seq: 9}}}),
		"Nack of an unknown topic": one(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "none/1", Seq: 9}),
		"Nack of nothing un-ACKed": one(wirev1.FrameType_FRAME_TYPE_NACK, &wirev1.Nack{Topic: "room/1", Seq: 9}),
		"Subscribe, its id in use": one(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/2"}),
		"Subscribe to no topic":    one(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room//2"}),
		"Subscribe with a content filter that is refused": one(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE,
			&wirev1.Subscribe{Id: 2, Filter: "room/2", Where: strings.Repeat("a || ", 900) + "(", Group: "g"}),
		"Subscribe and Unsubscribe": append(one(wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 2, Filter: "room/2"}),
			one(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 2})...),
		"Unsubscribe, unknown":        one(wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE, &wirev1.Unsubscribe{Id: 9}),
		"Publish, refused":            one(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 3, Topic: "room/1", Payload: []byte("hello")}),
		"Publish, refused in silence": one(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Topic: "room/1", Payload: []byte("hello")}),
		"Publish":                     one(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 3, Topic: "open/1", Payload: []byte("hello")}),
		"Publish with 64 headers": one(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{
			Id: 3, Topic: "open/1", Headers: headersOf(64),
		}),
		"Publish of 64 KiB": one(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 3, Topic: "open/1", Payload: make([]byte, 64<<10-100)}),
		"Claim, refused":    one(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: 4, Resource: "room/1"}),
		"Claim":             one(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: 4, Resource: "open/1", Op: wirev1.Claim_OP_CHECK}),
		"RefreshToken":      one(wirev1.FrameType_FRAME_TYPE_REFRESH_TOKEN, &wirev1.RefreshToken{Id: 5}),
		"one to skip":       one(0xf0, &wirev1.Ping{SentAt: 7}),
		"64 KiB to skip":    one(0xf0, &wirev1.Publish{Payload: make([]byte, 64<<10-100)}),
	}
}

func headersOf(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("header-%02d", i)] = "value"
	}
	return all
}

// asking is a hub with a connection that has a subscription with ACKs.
func asking(tb testing.TB) (*taking, *Hub, uint32) {
	tb.Helper()
	m := &taking{}
	h := newHub(tb, Config{
		Mesh: m, PolicyFor: openToAll(), Unhealthy: linkhealth.Report, Limits: Limits{MaxFrame: 1 << 20},
		Path: func(uint32) linkhealth.Path { return linkhealth.Path{RTT: 300} },
	})
	m.h = h
	h.SetTime(1, wallStart)
	slot, _ := h.Open()
	h.Feed(slot, frameOf(tb, wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1, ClientId: "ann"}), 1)
	h.Feed(slot, frameOf(tb, wirev1.FrameType_FRAME_TYPE_SUBSCRIBE, &wirev1.Subscribe{Id: 1, Filter: "room/1", Ack: true}), 1)
	m.answer()
	(&flusher{h: h}).flush()
	if h.Stats().Subscriptions != 1 {
		tb.Fatal("it has no subscription")
	}
	return m, h, slot
}

// A frame counts for about as many microseconds as it takes.
func TestFramesCountForWhatTheyTake(t *testing.T) {
	all := askedFor(t)
	for name, want := range map[string]uint64{
		"Ping": 1, "Unsubscribe, unknown": 2, "Subscribe, its id in use": 2, "Subscribe and Unsubscribe": 4, "Publish": 2, "Publish, refused": 2,
		"Publish with 64 headers": 35, "Publish of 64 KiB": 65, "64 KiB to skip": 64, "Claim": 1, "RefreshToken": 1,
	} {
		_, h, slot := asking(t)
		before := h.Spent()
		if used, _ := h.Feed(slot, all[name], 1<<20); used != len(all[name]) {
			t.Fatalf("%s: %d of %d bytes were taken", name, used, len(all[name]))
		}
		if got := h.Spent() - before; got != want {
			t.Errorf("%s counts for %d, want %d", name, got, want)
		}
	}
}

// What each frame costs, its answer included, and what it counts for.
func BenchmarkFrames(b *testing.B) {
	for name, frame := range askedFor(b) {
		b.Run(name, func(b *testing.B) {
			m, h, slot := asking(b)
			f := &flusher{h: h}
			spent, before := h.Spent(), h.Frames()
			b.ReportAllocs()
			for b.Loop() {
				for range 16 {
					if used, _ := h.Feed(slot, frame, 1<<20); used != len(frame) {
						b.Fatal("it is not read")
					}
					m.answer()
				}
				f.flush()
			}
			if h.Status(slot).Closing {
				b.Fatal("its connection has ended")
			}
			n := float64(h.Frames() - before)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/frame")
			b.ReportMetric(float64(h.Spent()-spent)/n, "units/frame")
		})
	}
}

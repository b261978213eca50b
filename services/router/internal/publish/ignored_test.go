package publish

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// asked is what a backend sends: one PublishStreamRequest, of which a Publish call has the message
// alone.
type asked struct {
	name string
	req  *pushmeshv1.PublishStreamRequest
}

var askedAt = time.Now().Add(time.Hour)

func askedModes() []asked {
	one := func(topic string) *pushmeshv1.PublishRequest {
		return &pushmeshv1.PublishRequest{Topic: topic, Payload: []byte("x")}
	}
	many := func(topics ...string) *pushmeshv1.PublishRequest {
		return &pushmeshv1.PublishRequest{Topics: topics, Payload: []byte("x")}
	}
	later := one("orders/1")
	later.DeliverAt = timestamppb.New(askedAt)
	id := bytes.Repeat([]byte{7}, producerIDSize)
	return []asked{
		{"durable", &pushmeshv1.PublishStreamRequest{Message: one("orders/1")}},
		{"ephemeral", &pushmeshv1.PublishStreamRequest{Message: one("live/1")}},
		{"many durable", &pushmeshv1.PublishStreamRequest{Message: many("orders/1", "orders/2")}},
		{"many ephemeral", &pushmeshv1.PublishStreamRequest{Message: many("live/1", "live/2")}},
		{"many of both", &pushmeshv1.PublishStreamRequest{Message: many("orders/1", "live/1")}},
		{"scheduled", &pushmeshv1.PublishStreamRequest{Message: later}},
		{"ordered", &pushmeshv1.PublishStreamRequest{Message: one("orders/1"), ProducerId: id, ProducerSeq: 9, SettledSeq: 2, SentMsAgo: 1000}},
		{"ordered, ephemeral", &pushmeshv1.PublishStreamRequest{Message: one("live/1"), ProducerId: id, ProducerSeq: 9, SettledSeq: 2, SentMsAgo: 1000}},
		{"ordered, many", &pushmeshv1.PublishStreamRequest{Message: many("orders/1", "orders/2"), ProducerId: id, ProducerSeq: 9, SettledSeq: 2, SentMsAgo: 1000}},
	}
}

// meansNothing says of a field without effect in a mode where docs/api.md says so, word for word;
// "" where it has one.
func meansNothing(mode, field string) string {
	switch field {
	case "producer_id", "producer_seq", "settled_seq", "sent_ms_ago":
		switch {
		case mode == "ordered, ephemeral":
			return "have no effect there, so a producer may number all of its messages"
		case !strings.HasPrefix(mode, "ordered") && field != "producer_seq":
			return "Without `producer_seq`, `producer_id`, `settled_seq` and `sent_ms_ago` have no effect"
		}
	}
	return ""
}

// Nothing that a backend says of a message is ignored in silence: each field, of each kind of
// publishing, changes what is stored, delivered or answered, is refused, or stands in docs/api.md
// as one that means nothing there.
func TestNothingThatABackendSaysIsIgnored(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range askedModes() {
		t.Run(mode.name, func(t *testing.T) {
			plain := outcome(t, mode.req)
			judge := func(field string, changed *pushmeshv1.PublishStreamRequest) {
				same, why := outcome(t, changed) == plain, meansNothing(mode.name, field)
				switch {
				case same && why == "":
					t.Errorf("%s is ignored in silence", field)
				case !same && why != "":
					t.Errorf("%s has an effect, though docs/api.md says: %s", field, why)
				case why != "" && !strings.Contains(string(page), why):
					t.Errorf("docs/api.md does not say of %s: %s", field, why)
				}
			}
			for _, of := range []func(*pushmeshv1.PublishStreamRequest) proto.Message{
				func(r *pushmeshv1.PublishStreamRequest) proto.Message { return r.GetMessage() },
				func(r *pushmeshv1.PublishStreamRequest) proto.Message { return r },
			} {
				fields := of(mode.req).ProtoReflect().Descriptor().Fields()
				for i := range fields.Len() {
					fd := fields.Get(i)
					if n := fd.FullName(); n == "pushmesh.v1.PublishStreamRequest.ref" || n == "pushmesh.v1.PublishStreamRequest.message" || n == "pushmesh.v1.PublishStreamRequest.batch" {
						continue // how a stream is read: TestAStreamAnswersEveryMessage
					}
					changed := proto.CloneOf(mode.req)
					other(t, of(changed), fd)
					judge(string(fd.Name()), changed)
				}
			}
		})
	}
}

// other gives a field another value, one that is allowed by itself.
func other(t *testing.T, m proto.Message, fd protoreflect.FieldDescriptor) {
	t.Helper()
	switch to := m.(type) {
	case *pushmeshv1.PublishRequest:
		switch fd.Name() {
		case "topic":
			to.Topic = strings.TrimSuffix("orders/2"+to.GetTopic(), to.GetTopic())
		case "payload":
			to.Payload = []byte("y")
		case "headers":
			to.Headers = map[string]string{"h": "v"}
		case "dedupe_key":
			to.DedupeKey = "k"
		case "priority":
			to.Priority = 4
		case "ttl":
			to.Ttl = durationpb.New(time.Minute)
		case "deliver_at":
			to.DeliverAt = timestamppb.New(askedAt.Add(time.Minute))
		case "features":
			to.Features = map[string]float64{"f": 1}
		case "traceparent":
			to.Traceparent = parent
		case "topics":
			to.Topics = append(to.Topics, "orders/3")
		case "vector":
			to.Vector = []float32{1, 2}
		default:
			t.Fatalf("this test knows no other value of %s", fd.FullName())
		}
	case *pushmeshv1.PublishStreamRequest:
		switch fd.Name() {
		case "producer_id":
			to.ProducerId = bytes.Repeat([]byte{8}, producerIDSize)
		case "producer_seq":
			to.ProducerSeq += 2
		case "settled_seq":
			to.SettledSeq += 2
		case "sent_ms_ago":
			to.SentMsAgo += 100_000
		default:
			t.Fatalf("this test knows no other value of %s", fd.FullName())
		}
	}
}

// outcome is all that comes of a request: the answer, what the store is asked to keep, and what is
// routed.
func outcome(t *testing.T, req *pushmeshv1.PublishStreamRequest) string {
	t.Helper()
	d := open(t, admission.Limits{})
	// Topics go their ways beside each other: what comes of them has no order.
	d.store.answers(func(it *meshv1.AppendItem) *meshv1.AppendResult {
		return &meshv1.AppendResult{Seq: 5, Epoch: 3, MessageId: it.GetMessageId()}
	})
	began := time.Now()
	res := publishOne(t, d.Publisher, &Message{
		Request: proto.CloneOf(req.GetMessage()), ProducerID: req.GetProducerId(), ProducerSeq: req.GetProducerSeq(), SettledSeq: req.GetSettledSeq(), SentMsAgo: req.GetSentMsAgo(),
	})
	var out strings.Builder
	fmt.Fprintln(&out, res.Code, res.Error, res.RetryAfter, res.Seq, res.Epoch, res.Duplicate, res.Scheduled)
	for _, r := range res.Topics {
		fmt.Fprintln(&out, r.GetSeq(), r.GetEpoch(), r.GetDuplicate(), r.GetCode(), r.GetError())
	}
	// Times from now on, in whole minutes: how long anything took is no part of it.
	ahead := func(at uint64) time.Duration {
		if at == 0 {
			return 0
		}
		return time.UnixMicro(int64(at)).Sub(began).Round(time.Minute)
	}
	body := func(b []byte) string {
		m := decoded(t, b)
		m.Id, m.PublishedAt = nil, 0
		return text(t, m)
	}
	d.store.mu.Lock()
	items := d.store.items
	d.store.mu.Unlock()
	for _, it := range items {
		expires, due, sent := ahead(it.GetExpiresAt()), ahead(it.GetDeliverAt()), time.Duration(it.GetSentMsAgo())*time.Millisecond
		said := body(it.GetBody())
		it.Ref, it.MessageId, it.Body, it.PublishedAt, it.ExpiresAt, it.DeliverAt, it.SentMsAgo = 0, nil, nil, 0, 0, 0, 0
		fmt.Fprintln(&out, "stored", text(t, it), said, expires, due, sent.Round(time.Minute))
	}
	routed, checked := d.routes.taken()
	for _, r := range routed {
		fmt.Fprintln(&out, "routed", r.Topic, r.Epoch, r.Seq, ahead(r.ExpiresAt), body(r.Body))
	}
	fmt.Fprintln(&out, "checked", checked)
	lines := strings.Split(out.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// text of a message, the same for the same one.
func text(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", b)
}

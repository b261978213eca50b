package publish

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/admission"
)

// What a producer says of a message is what the store is asked to keep, and what subscribers are
// sent; nothing is made up, and nothing is left out.
func TestADurableMessageIsStoredAsItWasPublished(t *testing.T) {
	d := open(t, admission.Limits{})
	id, transaction := bytes.Repeat([]byte{7}, 16), bytes.Repeat([]byte{9}, 16)
	due := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for name, c := range map[string]struct {
		m    *Message
		want *meshv1.AppendItem // beside what all have
		ttl  time.Duration      // from now
	}{
		"plain": {&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}}, &meshv1.AppendItem{}, 0},
		"keyed": {&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", DedupeKey: "k"}}, &meshv1.AppendItem{DedupeKey: "k"}, 0},
		"short": {&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", Ttl: durationpb.New(time.Minute)}}, &meshv1.AppendItem{}, time.Minute},
		"traced": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", Traceparent: parent}}, &meshv1.AppendItem{Traceparent: parent}, 0,
		},
		"later": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: timestamppb.New(due)}}, &meshv1.AppendItem{DeliverAt: uint64(due.UnixMicro())}, 0,
		},
		"later and short": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: timestamppb.New(due), Ttl: durationpb.New(time.Minute)}},
			&meshv1.AppendItem{DeliverAt: uint64(due.UnixMicro()), TtlUs: 60_000_000}, 0,
		},
		"numbered": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}, ProducerID: id, ProducerSeq: 5, SettledSeq: 4},
			&meshv1.AppendItem{ProducerId: id, ProducerSeq: 5, SettledSeq: 4}, 0,
		},
		"without a number": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}, ProducerID: id, SettledSeq: 4}, &meshv1.AppendItem{}, 0,
		},
		"of a transaction": {
			&Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1", DedupeKey: "k"}, Written: &Written{MessageID: transaction, KeySince: 12}},
			&meshv1.AppendItem{MessageId: transaction, DedupeKey: "k", DedupeWindowS: 24 * 3600, KeySince: 12}, 0,
		},
	} {
		c.m.Request.Payload, c.m.Request.Headers, c.m.Request.Priority, c.m.From = []byte(name), map[string]string{"h": "v"}, 3, "ann"
		before := time.Now().Truncate(time.Microsecond)
		res := publishOne(t, d.Publisher, c.m)
		got := d.store.last(t)
		if err := res.Err(); err != nil || res.Epoch != 3 || res.Seq == 0 || len(res.MessageID) != 16 || !bytes.Equal(res.MessageID, got.GetMessageId()) {
			t.Errorf("%s: %+v", name, res)
		}
		at := time.UnixMicro(int64(got.GetPublishedAt()))
		if at.Before(before) || at.After(time.Now()) {
			t.Errorf("%s: published at %v", name, at)
		}
		c.want.Topic, c.want.Body, c.want.Ref, c.want.PublishedAt = "orders/1", got.GetBody(), got.GetRef(), got.GetPublishedAt()
		c.want.SentMsAgo = got.GetSentMsAgo() // TestForHowLongANumberIsUnknown
		if c.want.MessageId == nil {
			c.want.MessageId = got.GetMessageId()
		}
		if c.ttl > 0 {
			c.want.ExpiresAt = got.GetPublishedAt() + uint64(c.ttl.Microseconds())
		}
		if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		want := &wirev1.Message{
			Payload: []byte(name), PublishedAt: got.GetPublishedAt(), Id: got.GetMessageId(), Headers: c.m.Request.GetHeaders(), Priority: 3, From: "ann",
			Traceparent: c.m.Request.GetTraceparent(),
		}
		if diff := cmp.Diff(want, decoded(t, got.GetBody()), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		routed, checked := d.routes.taken()
		if len(routed) != 1 || len(checked) != 0 {
			t.Fatalf("%s: routed %d times, looked after %v", name, len(routed), checked)
		}
		r := routed[0]
		if r.Topic != "orders/1" || r.Seq != res.Seq || r.Epoch != 3 || !bytes.Equal(r.Body, got.GetBody()) {
			t.Errorf("%s: routed %+v", name, r)
		}
		if name == "later and short" {
			// the store found that its time has passed: its ttl runs from the append
			if least := uint64(before.Add(time.Minute).UnixMicro()); r.ExpiresAt < least || r.ExpiresAt > uint64(time.Now().Add(time.Minute).UnixMicro()) {
				t.Errorf("%s: expires at %d, want %d or soon after", name, r.ExpiresAt, least)
			}
		} else if r.ExpiresAt != got.GetExpiresAt() {
			t.Errorf("%s: expires at %d on its way, and at %d in the log", name, r.ExpiresAt, got.GetExpiresAt())
		}
	}
}

// The store is told for how long the outcome of a number is unknown, so that it can tell whether it
// would remember it.
func TestForHowLongANumberIsUnknown(t *testing.T) {
	d := open(t, admission.Limits{})
	for ago, want := range map[uint64]uint64{0: 0, 60_000: 60_000, 1 << 62: maxSentMsAgo} {
		publishOne(t, d.Publisher, &Message{
			Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}, ProducerID: make([]byte, 16), ProducerSeq: 1, SentMsAgo: ago,
		})
		if got := d.store.last(t).GetSentMsAgo(); got < want || got > want+60_000 {
			t.Errorf("%d ms ago: %d", ago, got)
		}
	}
}

// What the store answers is what the producer is told. Only what was appended now is routed: what
// was published before is read where it stands, what is kept for later and what was refused is not
// sent at all; and where nobody knows, edges look.
func TestTheStoresAnswerIsTheProducers(t *testing.T) {
	d := open(t, admission.Limits{InFlight: 1})
	first := bytes.Repeat([]byte{1}, 16)
	for name, c := range map[string]struct {
		answer          *meshv1.AppendResult
		want            Result
		routed, checked int
	}{
		"appended":  {&meshv1.AppendResult{Seq: 4, Epoch: 2}, Result{Seq: 4, Epoch: 2}, 1, 0},
		"known":     {&meshv1.AppendResult{Seq: 4, Epoch: 2, Duplicate: true, MessageId: first}, Result{Seq: 4, Epoch: 2, Duplicate: true, MessageID: first}, 0, 1},
		"known of":  {&meshv1.AppendResult{Duplicate: true}, Result{Duplicate: true}, 0, 1},
		"scheduled": {&meshv1.AppendResult{Scheduled: true}, Result{Scheduled: true}, 0, 0},
		"scheduled before": {
			&meshv1.AppendResult{Scheduled: true, Duplicate: true, MessageId: first}, Result{Scheduled: true, Duplicate: true, MessageID: first}, 0, 0,
		},
		"refused": {
			&meshv1.AppendResult{Code: wirev1.Code_CODE_OVERLOADED, Error: "full", RetryAfterMs: 50},
			Result{Code: wirev1.Code_CODE_OVERLOADED, Error: "full", RetryAfter: 50 * time.Millisecond},
			0, 0,
		},
		"refused without a word": {&meshv1.AppendResult{Code: wirev1.Code_CODE_OUT_OF_ORDER}, Result{Code: wirev1.Code_CODE_OUT_OF_ORDER, Error: "OUT_OF_ORDER"}, 0, 0},
		"nobody knows":           {&meshv1.AppendResult{Code: wirev1.Code_CODE_INTERNAL, Error: "lost"}, Result{Code: wirev1.Code_CODE_INTERNAL, Error: "lost"}, 0, 1},
	} {
		d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return proto.CloneOf(c.answer) })
		counted := testutil.ToFloat64(d.metrics.total[c.want.Code])
		res := publishOne(t, d.Publisher, &Message{Producer: "p", Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}})
		if c.want.Code == wirev1.Code_CODE_OK && c.want.MessageID == nil {
			c.want.MessageID = d.store.last(t).GetMessageId()
		}
		if diff := cmp.Diff(&c.want, res); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		routed, checked := d.routes.taken()
		if len(routed) != c.routed || len(checked) != c.checked || slices.ContainsFunc(checked, func(s string) bool { return s != "orders/1" }) {
			t.Errorf("%s: routed %d times, looked after %v", name, len(routed), checked)
		}
		if n := testutil.ToFloat64(d.metrics.total[c.want.Code]) - counted; n != 1 {
			t.Errorf("%s: %v counted", name, n)
		}
	}
}

// However a message ends, what it took of its producer's limits is given back: a producer with one
// message at a time can go on.
func TestWhateverBecomesOfAMessageTheNextOneIsLetIn(t *testing.T) {
	d := open(t, admission.Limits{InFlight: 1})
	long := strings.Repeat("x", 300)
	bad := map[string]string{"\xff": "v"} // can't be encoded, should it get so far
	refused := func(*meshv1.AppendItem) *meshv1.AppendResult {
		return &meshv1.AppendResult{Code: wirev1.Code_CODE_OUT_OF_ORDER, Error: "no"}
	}
	for name, c := range map[string]struct {
		m      *Message
		answer func(*meshv1.AppendItem) *meshv1.AppendResult
		gone   bool
		away   bool
	}{
		"stored":          {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}}},
		"refused":         {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}}, answer: refused},
		"no store":        {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}}, gone: true},
		"routed":          {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "live/1"}}},
		"no edge":         {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "live/1"}}, away: true},
		"no UTF-8":        {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "live/1", Headers: bad}}},
		"no UTF-8 within": {m: &Message{From: "\xff", Request: &pushmeshv1.PublishRequest{Topic: "live/1"}}},
		"too long":        {m: &Message{Request: &pushmeshv1.PublishRequest{Topic: "live/1", DedupeKey: long}}},
		"many":            {m: &Message{Request: &pushmeshv1.PublishRequest{Topics: []string{"live/1"}}}},
		"many stored":     {m: &Message{Request: &pushmeshv1.PublishRequest{Topics: []string{"orders/1"}}}},
		"many refused":    {m: &Message{Request: &pushmeshv1.PublishRequest{Topics: []string{"orders/1"}}}, answer: refused},
		"many, no UTF-8":  {m: &Message{From: "\xff", Request: &pushmeshv1.PublishRequest{Topics: []string{"orders/1"}}}},
	} {
		d.store.answers(c.answer)
		d.store.mu.Lock()
		d.store.gone = c.gone
		d.store.mu.Unlock()
		if c.away {
			d.routes.away = fmt.Errorf("away")
		}
		c.m.Producer = "p"
		publishOne(t, d.Publisher, c.m)
		d.store.answers(nil)
		d.store.mu.Lock()
		d.store.gone = false
		d.store.mu.Unlock()
		d.routes.away = nil
		if n := d.cfg.Appender.InFlight(); n > 1 { // the last is given back after its answer
			t.Errorf("%s: %d wait for the store", name, n)
		}
		if res := publishOne(t, d.Publisher, &Message{Producer: "p", Request: &pushmeshv1.PublishRequest{Topic: "live/1"}}); res.Err() != nil {
			t.Errorf("%s: the next one: %v", name, res.Err())
		}
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	d.Publish(&Message{Context: t.Context(), Producer: "p", Request: &pushmeshv1.PublishRequest{Topic: "orders/last"}, To: make(waiter, 1)})
	if res := publishOne(t, d.Publisher, &Message{Producer: "p", Request: &pushmeshv1.PublishRequest{Topic: "live/1"}}); res.Code != wirev1.Code_CODE_RATE_LIMITED {
		t.Errorf("a second one beside one that has no answer: %+v", res)
	}
	d.store.release(t, "orders/last")
}

// An ephemeral message is sent to who is there now, is never stored, and is refused, to come again,
// where nobody could get it.
func TestEphemeralMessages(t *testing.T) {
	d := open(t, admission.Limits{})
	ttl := &pushmeshv1.PublishRequest{Topic: "live/1", Ttl: durationpb.New(time.Minute)}
	before := time.Now()
	res := publishOne(t, d.Publisher, &Message{Request: ttl})
	routed, _ := d.routes.taken()
	if res.Err() != nil || len(routed) != 1 || len(d.store.items) != 0 {
		t.Fatalf("%+v, routed %d times, %d stored", res, len(routed), len(d.store.items))
	}
	r := routed[0]
	if at := time.UnixMicro(int64(r.ExpiresAt)); r.Topic != "live/1" || r.Seq != 0 || r.Epoch != 0 || at.Before(before.Add(time.Minute-time.Millisecond)) || at.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v", r)
	}
	if m := decoded(t, r.Body); !bytes.Equal(m.GetId(), res.MessageID) {
		t.Errorf("it has the id %x, and is told to have %x", m.GetId(), res.MessageID)
	}
	if n := testutil.ToFloat64(d.metrics.noSubscriber); n != 0 {
		t.Errorf("%v counted that somebody got", n)
	}
	d.routes.away = fmt.Errorf("cut")
	res = publishOne(t, d.Publisher, &Message{Request: ttl})
	if res.Code != wirev1.Code_CODE_UNAVAILABLE || res.RetryAfter != natsRetry || !strings.Contains(res.Error, "cut") {
		t.Errorf("without an edge: %+v", res)
	}
	d.routes.away = nil
	// What a transaction wrote is sent once: what may have been sent before is not sent again, as
	// no log could tell.
	id := bytes.Repeat([]byte{3}, 16)
	for repeated, want := range map[bool]int{false: 1, true: 0} {
		d.routes.taken()
		res = publishOne(t, d.Publisher, &Message{Request: &pushmeshv1.PublishRequest{Topic: "live/1", DedupeKey: "k"}, Written: &Written{MessageID: id, Repeated: repeated}})
		if routed, _ := d.routes.taken(); len(routed) != want || res.Err() != nil || res.Duplicate != repeated || !bytes.Equal(res.MessageID, id) {
			t.Errorf("repeated %v: routed %d times, %+v", repeated, len(routed), res)
		}
	}
}

// One payload for many topics: each has its result in its place, all have one id, and one that is
// refused does not hold up the others.
func TestManyTopics(t *testing.T) {
	d := open(t, admission.Limits{Rate: 100, InFlight: 50})
	d.store.answers(func(it *meshv1.AppendItem) *meshv1.AppendResult {
		if it.GetTopic() == "orders/no" {
			return &meshv1.AppendResult{Code: wirev1.Code_CODE_OVERLOADED, Error: "full"}
		}
		return &meshv1.AppendResult{Seq: uint64(len(it.GetTopic())), Epoch: 2, Duplicate: it.GetTopic() == "orders/again"}
	})
	topics := []string{"orders/1", "live/1", "orders/no", "$sys/x", "orders/again", "", "live/2"}
	res := publishOne(t, d.Publisher, &Message{Producer: "p", Ref: 4, Request: &pushmeshv1.PublishRequest{Topics: topics, Payload: []byte("x")}})
	want := []*pushmeshv1.TopicResult{
		{Seq: 8, Epoch: 2},
		{},
		{Code: wirev1.Code_CODE_OVERLOADED, Error: "full"},
		{Code: wirev1.Code_CODE_FORBIDDEN, Error: `topic "$sys/x": topics that begin with $ are the mesh's own`},
		{Seq: 12, Epoch: 2, Duplicate: true},
		{Code: wirev1.Code_CODE_BAD_TOPIC, Error: res.Topics[5].GetError()},
		{},
	}
	if diff := cmp.Diff(want, res.Topics, protocmp.Transform()); diff != "" || res.Err() != nil {
		t.Errorf("%v %s", res.Err(), diff)
	}
	routed, _ := d.routes.taken()
	var to []string
	for _, r := range routed {
		to = append(to, r.Topic)
		if m := decoded(t, r.Body); !bytes.Equal(m.GetId(), res.MessageID) || string(m.GetPayload()) != "x" {
			t.Errorf("%s: %v", r.Topic, m)
		}
	}
	if slices.Sort(to); !slices.Equal(to, []string{"live/1", "live/2", "orders/1"}) {
		t.Errorf("routed to %v", to)
	}

	// Beside a message that has no answer yet, a namespace whose part is too much for its producer
	// is refused as a whole, by name, and what was refused says so.
	for i := range 60 {
		topics = append(topics[:i], fmt.Sprintf("orders/%d", i))
	}
	d.store.answers(func(*meshv1.AppendItem) *meshv1.AppendResult { return nil })
	d.Publish(&Message{Context: t.Context(), Producer: "q", Request: &pushmeshv1.PublishRequest{Topic: "open/1"}, To: make(waiter, 1)})
	d.store.waits(t, "open/1")
	d.store.answers(nil)
	w := make(waiter, 1)
	topics = append(topics, "live/1")
	if !d.Publish(&Message{Context: t.Context(), Producer: "q", Request: &pushmeshv1.PublishRequest{Topics: topics}, To: w}) {
		t.Error("what is refused for its producer's limits is no refusal")
	}
	res = <-w
	for i, r := range res.Topics {
		if want := i < 60; (r.GetCode() == wirev1.Code_CODE_RATE_LIMITED) != want {
			t.Fatalf("%s: %v", topics[i], r)
		}
	}
	// All that was let in is given back: the whole of it is let in again, as the producer's rate
	// allows.
	w = make(waiter, 1)
	d.store.release(t, "open/1")
	d.routes.taken()
	if d.Publish(&Message{Context: t.Context(), Producer: "r", Request: &pushmeshv1.PublishRequest{Topics: topics[:50]}, To: w}) {
		t.Error(<-w)
	} else if res := <-w; res.Topics[49].GetCode() != wirev1.Code_CODE_OK {
		t.Errorf("%v", res.Topics[49])
	}
}

// A durable topic whose store can't keep up is refused alone, and costs nothing that it was let in
// for; what an ephemeral one needs is another matter.
func TestATopicWhoseStoreIsBusyIsRefusedAlone(t *testing.T) {
	d := open(t, admission.Limits{})
	d.cfg.Admission = admission.New(admission.Config{Producer: admission.Limits{InFlight: 3}, Store: func(topic string, _ uint32) (float64, bool) {
		return 1, topic != "orders/1"
	}})
	topics := []string{"orders/1", "orders/2", "live/1"}
	for range 3 {
		w := make(waiter, 1)
		if !d.Publish(&Message{Context: t.Context(), Producer: "p", Request: &pushmeshv1.PublishRequest{Topics: topics}, To: w}) {
			t.Error("what is refused for the store is no refusal")
		}
		res := <-w
		for i, want := range []wirev1.Code{wirev1.Code_CODE_OVERLOADED, wirev1.Code_CODE_OK, wirev1.Code_CODE_OK} {
			if got := res.Topics[i]; got.GetCode() != want {
				t.Errorf("%s: %v", topics[i], got)
			}
		}
	}
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if slices.ContainsFunc(d.store.items, func(it *meshv1.AppendItem) bool { return it.GetTopic() == "orders/1" }) {
		t.Error("what was refused is stored nevertheless")
	}
}

// What a router does is measured: each answer by its code, and how long it took.
func TestAnswersAreMeasured(t *testing.T) {
	d := open(t, admission.Limits{})
	reg := prometheus.NewRegistry()
	d.metrics = newMetrics(reg)
	publishOne(t, d.Publisher, &Message{Request: &pushmeshv1.PublishRequest{Topic: "orders/1"}})
	publishOne(t, d.Publisher, &Message{Request: &pushmeshv1.PublishRequest{Topic: "$no"}})
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "pushmesh_router_publish_seconds" {
			if n := m.GetMetric()[0].GetHistogram().GetSampleCount(); n != 2 {
				t.Errorf("%d answers are timed", n)
			}
			return
		}
	}
	t.Error("answers are not timed")
}

// A message that breaks a rule is refused by name; one that is just within every bound is taken.
func TestBoundsOfAMessage(t *testing.T) {
	headers := func(n, size int) map[string]string {
		h := map[string]string{}
		for i := range n {
			h[fmt.Sprintf("%04d", i)] = ""
		}
		if size > 0 {
			h["0000"] = strings.Repeat("v", size-4*n)
		}
		return h
	}
	ahead := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("live/%d", i))
		}
		return all
	}
	for name, c := range map[string]struct {
		m    *pushmeshv1.PublishRequest
		want wirev1.Code
	}{
		"nothing":             {nil, wirev1.Code_CODE_INVALID_ARGUMENT},
		"no topic":            {&pushmeshv1.PublishRequest{}, wirev1.Code_CODE_BAD_TOPIC},
		"of the mesh":         {&pushmeshv1.PublishRequest{Topic: "$sys/1"}, wirev1.Code_CODE_FORBIDDEN},
		"topic and topics":    {&pushmeshv1.PublishRequest{Topic: "live/1", Topics: many(1)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"all topics":          {&pushmeshv1.PublishRequest{Topics: many(MaxTopics)}, wirev1.Code_CODE_OK},
		"too many topics":     {&pushmeshv1.PublishRequest{Topics: many(MaxTopics + 1)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"urgent":              {&pushmeshv1.PublishRequest{Topic: "live/1", Priority: 9}, wirev1.Code_CODE_OK},
		"too urgent":          {&pushmeshv1.PublishRequest{Topic: "live/1", Priority: 10}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"key":                 {&pushmeshv1.PublishRequest{Topic: "orders/1", DedupeKey: strings.Repeat("k", 256)}, wirev1.Code_CODE_OK},
		"long key":            {&pushmeshv1.PublishRequest{Topic: "orders/1", DedupeKey: strings.Repeat("k", 257)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"key that is lost":    {&pushmeshv1.PublishRequest{Topic: "live/1", DedupeKey: "k"}, wirev1.Code_CODE_UNSUPPORTED},
		"shortest ttl":        {&pushmeshv1.PublishRequest{Topic: "live/1", Ttl: durationpb.New(1)}, wirev1.Code_CODE_OK},
		"no ttl":              {&pushmeshv1.PublishRequest{Topic: "live/1", Ttl: durationpb.New(0)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"nonsense ttl":        {&pushmeshv1.PublishRequest{Topic: "live/1", Ttl: &durationpb.Duration{Seconds: 1, Nanos: -1}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"headers":             {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: headers(64, 0)}, wirev1.Code_CODE_OK},
		"too many headers":    {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: headers(65, 0)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"long headers":        {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: headers(2, 8<<10)}, wirev1.Code_CODE_OK},
		"too long headers":    {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: headers(2, 8<<10+1)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"header name":         {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: map[string]string{"": "v"}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"header with bytes":   {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: map[string]string{"\xff": "v"}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"value of bytes":      {&pushmeshv1.PublishRequest{Topic: "live/1", Headers: map[string]string{"h": "\xff"}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"payload":             {&pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 1000)}, wirev1.Code_CODE_OK},
		"large payload":       {&pushmeshv1.PublishRequest{Topic: "live/1", Payload: make([]byte, 1001)}, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		"features":            {&pushmeshv1.PublishRequest{Topic: "live/1", Features: map[string]float64{"f": 1}, Vector: []float32{1}}, wirev1.Code_CODE_OK},
		"a vector":            {&pushmeshv1.PublishRequest{Topic: "live/1", Vector: []float32{1}}, wirev1.Code_CODE_OK},
		"numbers":             {&pushmeshv1.PublishRequest{Topic: "live/1", Features: map[string]float64{"f": 1}}, wirev1.Code_CODE_OK},
		"too many dimensions": {&pushmeshv1.PublishRequest{Topic: "live/1", Vector: make([]float32, 100_000)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"in a year":           {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: ahead(365 * 24 * time.Hour)}, wirev1.Code_CODE_OK},
		"in two years":        {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: ahead(2 * 366 * 24 * time.Hour)}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"long ago":            {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: timestamppb.New(time.UnixMicro(1))}, wirev1.Code_CODE_OK},
		"before all time":     {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: timestamppb.New(time.UnixMicro(0))}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"more than a second":  {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: &timestamppb.Timestamp{Seconds: 1e9, Nanos: 2e9}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"no time":             {&pushmeshv1.PublishRequest{Topic: "orders/1", DeliverAt: &timestamppb.Timestamp{Nanos: -1}}, wirev1.Code_CODE_INVALID_ARGUMENT},
		"later, of many":      {&pushmeshv1.PublishRequest{Topics: []string{"orders/1"}, DeliverAt: ahead(time.Hour)}, wirev1.Code_CODE_UNSUPPORTED},
		"later, not kept":     {&pushmeshv1.PublishRequest{Topic: "live/1", DeliverAt: ahead(time.Hour)}, wirev1.Code_CODE_UNSUPPORTED},
	} {
		d := open(t, admission.Limits{})
		res := publishOne(t, d.Publisher, &Message{Request: c.m})
		if res.Code != c.want || c.want != wirev1.Code_CODE_OK && res.Error == "" {
			t.Errorf("%s: %v %q, want %v", name, res.Code, res.Error, c.want)
		}
		if strings.HasPrefix(name, "header") && res.Code != wirev1.Code_CODE_OK && !strings.Contains(res.Error, "header") {
			t.Errorf("%s: %q does not name what is wrong", name, res.Error)
		}
		routed, _ := d.routes.taken()
		if len(routed) > 0 != (c.want == wirev1.Code_CODE_OK) {
			t.Errorf("%s: routed %d times", name, len(routed))
		}
		if len(routed) > 0 {
			ranked := &meshv1.MessageFeatures{}
			if err := proto.Unmarshal(decoded(t, routed[0].Body).GetMesh(), ranked); err != nil {
				t.Fatal(err)
			}
			want := &meshv1.MessageFeatures{Features: c.m.GetFeatures(), Vector: c.m.GetVector()}
			if diff := cmp.Diff(want, ranked, protocmp.Transform()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	d := open(t, admission.Limits{})
	for name, m := range map[string]*Message{
		"settled beyond":      {ProducerID: make([]byte, 16), ProducerSeq: 3, SettledSeq: 3},
		"an id of 15 bytes":   {ProducerID: make([]byte, 15)},
		"a number without id": {ProducerSeq: 1},
	} {
		m.Request = &pushmeshv1.PublishRequest{Topic: "orders/1"}
		if res := publishOne(t, d.Publisher, m); res.Code != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %+v", name, res)
		}
	}
	// Clients publish where their namespace lets them, and nowhere else.
	for topic, want := range map[string]wirev1.Code{"open/1": wirev1.Code_CODE_OK, "orders/1": wirev1.Code_CODE_FORBIDDEN, "live/1": wirev1.Code_CODE_FORBIDDEN} {
		if res := publishOne(t, d.Publisher, &Message{FromClient: true, Request: &pushmeshv1.PublishRequest{Topic: topic}}); res.Code != want {
			t.Errorf("a client in %s: %+v", topic, res)
		}
	}
}

// A dead letter that is replayed is the message that it was: its bytes, its id, its time and its
// trace, once.
func TestADeadLetterIsReplayedAsItWas(t *testing.T) {
	d := open(t, admission.Limits{InFlight: 1})
	m := &wirev1.Message{Payload: []byte("x"), Id: bytes.Repeat([]byte{5}, 16), PublishedAt: 17, Traceparent: parent}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	replay := func(topic string, m *wirev1.Message) *Result {
		w := make(waiter, 1)
		d.Replay(&meshv1.DeadLetter{Id: 8, Topic: topic, Body: body, At: 99}, m, 0, w)
		return <-w
	}
	if res := replay("orders/1", m); res.Err() != nil || res.Seq != 1 || !bytes.Equal(res.MessageID, m.GetId()) {
		t.Errorf("%+v", res)
	}
	got := d.store.last(t)
	want := &meshv1.AppendItem{
		Ref: got.GetRef(), Topic: "orders/1", Body: body, MessageId: m.GetId(), PublishedAt: 17, Traceparent: parent, DeadLetter: 8,
		DedupeKey: "\x00dead-letter/8/99", DedupeWindowS: 24 * 3600,
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	routed, _ := d.routes.taken()
	if len(routed) != 1 || routed[0].Seq != 1 || !bytes.Equal(routed[0].Body, body) || routed[0].ExpiresAt != 0 {
		t.Errorf("routed %+v", routed)
	}
	for name, c := range map[string]struct {
		topic string
		m     *wirev1.Message
		want  wirev1.Code
	}{
		"nothing keeps it":      {"live/1", m, wirev1.Code_CODE_UNSUPPORTED},
		"nobody knows its id":   {"orders/1", &wirev1.Message{Id: []byte("short")}, wirev1.Code_CODE_INTERNAL},
		"nobody owns its topic": {"orders/1", m, wirev1.Code_CODE_UNAVAILABLE},
	} {
		d.store.mu.Lock()
		d.store.gone = c.want == wirev1.Code_CODE_UNAVAILABLE
		d.store.mu.Unlock()
		counted := testutil.ToFloat64(d.metrics.total[c.want])
		if res := replay(c.topic, c.m); res.Code != c.want || res.Error == "" {
			t.Errorf("%s: %+v", name, res)
		}
		if n := testutil.ToFloat64(d.metrics.total[c.want]) - counted; n != 1 {
			t.Errorf("%s: counted %v times", name, n)
		}
	}
	d.cfg.Admission = admission.New(admission.Config{Lag: func() float64 { return 1 }})
	if res := replay("orders/1", m); res.Code != wirev1.Code_CODE_OVERLOADED {
		t.Errorf("a router without time: %+v", res)
	}
}

// A code that a newer store may answer with, and this router does not know, is counted as what it
// is to producers: a fault of the mesh.
func TestAnUnknownCodeIsCounted(t *testing.T) {
	p, _ := newPublisher(noop.NewTracerProvider())
	p.cfg.Policies = fixed{policy.NewTable(nil)}
	p.metrics.refused(wirev1.Code(9999), 3)
	p.metrics.published(time.Now(), wirev1.Code(9999))
	if n := testutil.ToFloat64(p.metrics.total[wirev1.Code_CODE_INTERNAL]); n != 4 {
		t.Errorf("%v counted", n)
	}
}

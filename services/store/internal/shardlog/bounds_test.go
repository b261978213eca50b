package shardlog

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// What is just within a bound is appended, and what is just beyond it is refused for good.
func TestItemsKeepTheirBounds(t *testing.T) {
	producer := make([]byte, 16)
	for name, c := range map[string]struct {
		change func(*meshv1.AppendItem)
		want   wirev1.Code
	}{
		"as it is":                    {func(*meshv1.AppendItem) {}, wirev1.Code_CODE_OK},
		"a filter":                    {func(i *meshv1.AppendItem) { i.Topic = "room/+" }, wirev1.Code_CODE_BAD_TOPIC},
		"an id of 15 bytes":           {func(i *meshv1.AppendItem) { i.MessageId = make([]byte, 15) }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"the largest body":            {func(i *meshv1.AppendItem) { i.Body = make([]byte, run.MaxRecord) }, wirev1.Code_CODE_OK},
		"a larger body":               {func(i *meshv1.AppendItem) { i.Body = make([]byte, run.MaxRecord+1) }, wirev1.Code_CODE_PAYLOAD_TOO_LARGE},
		"the longest traceparent":     {func(i *meshv1.AppendItem) { i.Traceparent = strings.Repeat("x", run.MaxTraceparent) }, wirev1.Code_CODE_OK},
		"a longer traceparent":        {func(i *meshv1.AppendItem) { i.Traceparent = strings.Repeat("x", run.MaxTraceparent+1) }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"the longest key":             {func(i *meshv1.AppendItem) { i.DedupeKey = strings.Repeat("x", 1024) }, wirev1.Code_CODE_OK},
		"a longer key":                {func(i *meshv1.AppendItem) { i.DedupeKey = strings.Repeat("x", 1025) }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"the longest window":          {func(i *meshv1.AppendItem) { i.DedupeWindowS = uint32(policy.MaxDedupeWindow / time.Second) }, wirev1.Code_CODE_OK},
		"a longer window":             {func(i *meshv1.AppendItem) { i.DedupeWindowS = uint32(policy.MaxDedupeWindow/time.Second) + 1 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"a number":                    {func(i *meshv1.AppendItem) { i.ProducerId, i.ProducerSeq = producer, 1 }, wirev1.Code_CODE_OK},
		"a number of nobody":          {func(i *meshv1.AppendItem) { i.ProducerSeq = 1 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"a producer of 15 bytes":      {func(i *meshv1.AppendItem) { i.ProducerId, i.ProducerSeq = producer[:15], 1 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"a producer without a number": {func(i *meshv1.AppendItem) { i.ProducerId = producer }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"all before it settled":       {func(i *meshv1.AppendItem) { i.ProducerId, i.ProducerSeq, i.SettledSeq = producer, 7, 6 }, wirev1.Code_CODE_OK},
		"itself settled":              {func(i *meshv1.AppendItem) { i.ProducerId, i.ProducerSeq, i.SettledSeq = producer, 7, 7 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"a ttl at once":               {func(i *meshv1.AppendItem) { i.TtlUs = 1 }, wirev1.Code_CODE_INVALID_ARGUMENT},
		"a ttl later":                 {func(i *meshv1.AppendItem) { i.TtlUs, i.DeliverAt = 1, noon }, wirev1.Code_CODE_OK},
		"a ttl of what was due":       {func(i *meshv1.AppendItem) { i.TtlUs, i.Due = 1, noon }, wirev1.Code_CODE_OK},
	} {
		item := itemOf("room/1", 0, 0, "")
		c.change(item)
		err := check(item)
		if got := code.Of(err); err == nil && c.want != wirev1.Code_CODE_OK || err != nil && (got != c.want || code.Retryable(got)) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// The database is asked for a key exactly where it may have been used before this store remembers
// all keys: an append waits for no question that can't matter.
func TestTheDatabaseIsAskedForKeysThatMemoryMayNotHave(t *testing.T) {
	table := policy.NewTable(nil) // rooms remember keys for two minutes
	for name, c := range map[string]struct {
		change func(*entry)
		since  time.Duration // the shard was taken
		asked  bool
	}{
		"within the window":               {func(*entry) {}, 2*time.Minute - time.Microsecond, true},
		"beyond the window":               {func(*entry) {}, 2 * time.Minute, false},
		"within a window of its own":      {func(e *entry) { e.item.DedupeWindowS = 5 }, 5*time.Second - time.Microsecond, true},
		"beyond a window of its own":      {func(e *entry) { e.item.DedupeWindowS = 5 }, 5 * time.Second, false},
		"a key that is new since before":  {func(e *entry) { e.item.KeySince = noon - micros(10*time.Second) }, 70*time.Second - time.Microsecond, true},
		"a key that is newer":             {func(e *entry) { e.item.KeySince = noon - micros(10*time.Second) }, 70 * time.Second, false},
		"a key of the future":             {func(e *entry) { e.item.KeySince = noon + micros(time.Hour) }, time.Minute, false},
		"a key of long ago":               {func(e *entry) { e.item.KeySince = 1 }, 2 * time.Minute, false},
		"a message that fell due":         {func(e *entry) { e.item.Due = noon }, 2*time.Minute - time.Microsecond, true},
		"a message that fell due, later":  {func(e *entry) { e.item.Due = noon }, 2 * time.Minute, false},
		"one that is cancelled":           {func(e *entry) { e.cancels = &backend.ScheduledID{} }, 2*time.Minute - time.Microsecond, true},
		"one that is cancelled, later":    {func(e *entry) { e.cancels, e.item.DedupeWindowS = &backend.ScheduledID{}, 3600 }, 2 * time.Minute, false},
		"no key":                          {func(e *entry) { e.key = backend.KeyHash{} }, 0, false},
		"a key that is remembered anyway": {func(e *entry) { e.key = hashKey("room/1", "remembered") }, 0, false},
		"one that was remembered":         {func(e *entry) { e.key = hashKey("room/1", "over") }, 0, true},
	} {
		s := owning()
		s.keys.put(backend.Key{Hash: hashKey("room/1", "remembered"), Until: noon + 1}, noon)
		s.keys.put(backend.Key{Hash: hashKey("room/1", "over"), Until: noon}, noon)
		s.keys.since(noon - micros(c.since))
		s.keys.since(noon - micros(c.since) - 1) // an earlier time takes nothing back
		e := entryOf(itemOf("room/1", 0, 0, "k"))
		c.change(e)
		asked := unknownKeys(s, []*entry{e}, noon, table)
		if want := map[bool]int{true: 1}[c.asked]; len(asked) != want || c.asked && asked[0] != e.key {
			t.Errorf("%s: asked for %d keys, want %d", name, len(asked), want)
		}
	}
}

// Keys are a topic's own, however names and keys are cut; and a scheduled message, an ordered one
// that is scheduled, and one with neither are each known by another.
func TestKeysAreApart(t *testing.T) {
	ordered := itemOf("room/1", 1, 7, "")
	ordered.DeliverAt = noon
	next := itemOf("room/1", 1, 8, "")
	next.DeliverAt = noon
	other := itemOf("room/1", 2, 7, "")
	other.DeliverAt = noon
	due := itemOf("room/1", 0, 0, "k")
	due.Due = noon
	seen := map[backend.KeyHash]string{}
	for name, h := range map[string]backend.KeyHash{
		"room/1 k": keyOf(itemOf("room/1", 0, 0, "k")), "room/1 1k": hashKey("room/1", "1k"), "room/11 k": hashKey("room/11", "k"), "user/1 k": hashKey("user/1", "k"),
		"ordered": keyOf(ordered), "the next": keyOf(next), "another producer's": keyOf(other), "due": keyOf(due),
	} {
		if seen[h] != "" || h == (backend.KeyHash{}) {
			t.Errorf("%s has the key of %s", name, seen[h])
		}
		seen[h] = name
	}
	for name, item := range map[string]*meshv1.AppendItem{"plain": itemOf("room/1", 0, 0, ""), "ordered": itemOf("room/1", 1, 7, "")} {
		if h := keyOf(item); h != (backend.KeyHash{}) {
			t.Errorf("%s has a key", name)
		}
	}
	if keyOf(due) != ScheduleKey([16]byte(due.GetMessageId())) {
		t.Error("what fell due is not known by its message")
	}
}

// Memory for keys is bounded by their number and by time.
func TestTheKeyCacheIsBounded(t *testing.T) {
	c := keyCache{keysMax: 3, generationDuration: 10 * time.Second}
	put := func(n byte, at uint64) { c.put(backend.Key{Hash: backend.KeyHash{n}, Until: noon * 2}, at) }
	for n := range byte(7) {
		put(n, noon)
		if len(c.now) > 3 || len(c.before) > 3 {
			t.Fatalf("%d and %d keys are kept", len(c.now), len(c.before))
		}
	}
	for n, want := range map[byte]bool{0: false, 2: false, 3: true, 5: true, 6: true} {
		if _, got := c.get(backend.KeyHash{n}, noon); got != want {
			t.Errorf("key %d is known: %v", n, got)
		}
	}
	c = keyCache{keysMax: 100, generationDuration: 10 * time.Second}
	put(1, noon)
	if put(2, noon+micros(10*time.Second)); len(c.now) != 2 || c.covers != 0 {
		t.Errorf("a generation is over before its time: %d keys, all since %d", len(c.now), c.covers)
	}
	if put(3, noon+micros(10*time.Second)+1); len(c.now) != 1 || len(c.before) != 2 || c.covers != 0 {
		t.Errorf("a generation is not over after its time: %d and %d keys, all since %d", len(c.now), len(c.before), c.covers)
	}
	if put(4, noon+micros(21*time.Second)); len(c.now) != 1 || len(c.before) != 1 || c.covers != noon+micros(10*time.Second)+1 {
		t.Errorf("two generations later: %d and %d keys, all since %d", len(c.now), len(c.before), c.covers)
	}
	usual := keyCache{}
	for n := range keysPerGeneration + 1 {
		usual.put(backend.Key{Hash: backend.KeyHash{byte(n), byte(n >> 8), byte(n >> 16)}}, noon)
	}
	if len(usual.now) != 1 || len(usual.before) != keysPerGeneration {
		t.Errorf("of %d keys %d and %d are kept", keysPerGeneration+1, len(usual.now), len(usual.before))
	}
}

// A number without a position is taken exactly where, had it been published, its position would be
// here: sent after the last that was forgotten, as long as a message may take included.
func TestWhetherAPositionWouldBeKnown(t *testing.T) {
	const now, sent = noon, 5 * time.Second
	forgot := noon - micros(sent+sentSlack)
	for name, c := range map[string]struct {
		forgot, ago uint64
		want        bool
	}{
		"nothing was forgotten":            {0, 1 << 62, true},
		"sent since":                       {forgot, 5000, true},
		"sent a moment before":             {forgot, 5001, false},
		"forgotten a moment later":         {forgot + 1, 5000, false},
		"sent now":                         {noon - micros(sentSlack), 0, true},
		"sent now, forgotten just now":     {noon - micros(sentSlack) + 1, 0, false},
		"sent longer ago than is kept":     {forgot, 1 << 62, false},
		"sent before what was forgotten":   {noon - micros(15*24*time.Hour), uint64((14 * 24 * time.Hour).Milliseconds()), true},
		"sent before time itself":          {1, noon, true},
		"sent before time, in a young one": {1, noon / 10, true},
	} {
		if got := (&shard{forgot: c.forgot}).known(now, c.ago); got != c.want {
			t.Errorf("%s: known is %v", name, got)
		}
	}
	if (&shard{forgot: 1}).known(micros(sentSlack), 0) {
		t.Error("at the beginning of time: known")
	}
}

// What waits is bounded by bytes as by number, and so is a group; one larger than a group goes
// alone. What is taken makes room again.
func TestTheQueueIsBoundedByBytes(t *testing.T) {
	l := newLane("0", Config{Backend: well{}, Metrics: NewMetrics(prometheus.NewRegistry())}, &pace{})
	l.state, l.away, l.now = owning(), nil, time.Now
	sized := func(size int) *entry {
		e := entryOf(itemOf("room/1", 0, 0, ""))
		e.item.Body = make([]byte, size-len("room/1")-256)
		l.wanted[e.shard] = true
		return e
	}
	var refusedAt []int
	refusedWith := wirev1.Code_CODE_OVERLOADED
	put := func(sizes ...int) {
		for i, size := range sizes {
			e := sized(size)
			e.sink = sinkOf(func(rs []*meshv1.AppendResult) {
				if rs[0].GetCode() != refusedWith || rs[0].GetRetryAfterMs() == 0 {
					t.Errorf("%v", rs[0])
				}
				refusedAt = append(refusedAt, i)
			})
			l.submit([]*entry{e})
		}
	}
	taken := func(want ...int) {
		t.Helper()
		if got := l.take(); len(got) != len(want) {
			t.Errorf("%d are taken, want %d", len(got), len(want))
		}
	}
	put(maxBatchBytes-1000, 1000, 1000) // all but the last are just a group
	taken(0, 0)
	taken(0)
	put(maxBatchBytes-1000, 1001)
	taken(0)
	taken(0)
	put(2*maxBatchBytes, 1000)
	taken(0)
	taken(0)
	if l.bytes != 0 || len(refusedAt) > 0 {
		t.Fatalf("%d bytes wait where nothing does, refused %v", l.bytes, refusedAt)
	}
	put(maxQueuedBytes-1000, 1001, 1000, 300)
	if fmt.Sprint(refusedAt) != "[1 3]" || l.bytes != maxQueuedBytes {
		t.Errorf("refused %v, want the second and the fourth; %d bytes wait", refusedAt, l.bytes)
	}
	if n := l.pace.unanswered.Load(); n != 2+7 {
		t.Errorf("%d are not answered", n)
	}
	refusedWith = wirev1.Code_CODE_UNAVAILABLE
	if l.setAway(errTest); l.bytes != 0 || l.queue != nil {
		t.Errorf("%d bytes wait of what was refused", l.bytes)
	}
}

// sinkOf is a sink that is a function.
type sinkFunc struct{ f func([]*meshv1.AppendResult) }

func sinkOf(f func([]*meshv1.AppendResult)) *sinkFunc { return &sinkFunc{f} }

func (s *sinkFunc) Results(rs []*meshv1.AppendResult) { s.f(rs) }

// recorder is a tracer that keeps what it is told.
type recorder struct {
	noop.Tracer
	spans []*recorded
}

type recorded struct {
	noop.Span
	name          string
	config        trace.SpanConfig
	status        otelcodes.Code
	ended, parent bool
	at            time.Time
}

func (r *recorder) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &recorded{name: name, config: trace.NewSpanStartConfig(opts...), parent: trace.SpanContextFromContext(ctx).IsValid()}
	r.spans = append(r.spans, s)
	return ctx, s
}

func (s *recorded) SetStatus(c otelcodes.Code, _ string) { s.status = c }

func (s *recorded) End(opts ...trace.SpanEndOption) {
	config := trace.NewSpanEndConfig(opts...)
	s.ended, s.at = true, config.Timestamp()
}

// A message that is traced has a span of its append, from when it came to its answer, which fails
// where the append did; others have none.
func TestAppendsAreTraced(t *testing.T) {
	r := &recorder{}
	l := newLane("0", Config{Backend: well{}, Metrics: NewMetrics(prometheus.NewRegistry()), Tracer: r, Now: func() time.Time { return time.Unix(20, 0) }}, &pace{})
	var entries []*entry
	for _, parent := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01"} {
		e := entryOf(itemOf("room/1", 0, 0, ""))
		e.item.Traceparent, e.sink, e.at = parent, nowhere{}, time.Unix(10, 0)
		entries = append(entries, e)
	}
	l.answer(entries, []*meshv1.AppendResult{{}, {Seq: 7}, {Code: wirev1.Code_CODE_OVERLOADED}})
	if len(r.spans) != 2 {
		t.Fatalf("%d spans of two messages that are traced", len(r.spans))
	}
	for i, want := range []otelcodes.Code{otelcodes.Unset, otelcodes.Error} {
		if s := r.spans[i]; !s.ended || !s.parent || s.status != want || !s.at.Equal(time.Unix(20, 0)) || !s.config.Timestamp().Equal(time.Unix(10, 0)) || len(s.config.Attributes()) != 2 {
			t.Errorf("span %d: %+v", i, s)
		}
	}
}

// Answers are counted by code, and those that repeat another one.
func TestAnswersAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.answered([]*meshv1.AppendResult{{}, {Duplicate: true}, {Duplicate: true}, {Code: wirev1.Code_CODE_OVERLOADED}})
	m.answered(nil)
	m.forgot(0, 0)
	m.unplaced(&unplaced{})
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all { // what never happened is no series of its own
		if want := map[string]int{"pushmesh_store_appends_total": 2}[f.GetName()]; len(f.GetMetric()[0].GetLabel()) > 0 && len(f.GetMetric()) != want {
			t.Errorf("%d series of %s, want %d", len(f.GetMetric()), f.GetName(), want)
		}
	}
	m.forgot(2, 3)
	m.unplaced(&unplaced{share: 1, full: 2, forgotten: 3})
	m.shardRefused()
	for name, want := range map[string]float64{
		"pushmesh_store_appends_total": 4, "pushmesh_store_append_duplicates_total": 2, "pushmesh_store_producer_positions_forgotten_total": 5, "pushmesh_store_producer_refusals_total": 6,
		"pushmesh_store_shards_inconsistent_total": 1,
	} {
		if got := gauge(t, reg, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// scriptedLog answers as told, in one piece.
type scriptedLog func(items []*meshv1.AppendItem) []*meshv1.AppendResult

func (l scriptedLog) Append(items []*meshv1.AppendItem, sink shardlog.Sink) { sink.Results(l(items)) }

// memoryBus keeps what it is given, or refuses it.
type memoryBus struct {
	mu     sync.Mutex
	away   bool
	stored []*meshv1.Stored
	tb     rapid.TB
}

func (b *memoryBus) Publish(subject string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return errors.New("away")
	}
	if subject != bus.Stored || len(data) > bus.MaxMessage {
		b.tb.Fatalf("%d bytes on %s", len(data), subject)
	}
	m := &meshv1.Stored{}
	if err := proto.Unmarshal(data, m); err != nil {
		b.tb.Fatal(err)
	}
	b.stored = append(b.stored, m)
	return nil
}

type count struct {
	mu      sync.Mutex
	results int
}

func (c *count) Results(rs []*meshv1.AppendResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results += len(rs)
}

// Whatever the log answers: what was committed is told once with its seq and body, what may be
// there already is told as a topic, what was refused is not told, and no notice is too large for
// the bus.
func TestWhatWasCommittedIsTold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads := map[string]uint64{}
		want := map[string]string{} // "topic/seq" → body
		checks := map[string]bool{}
		b := &memoryBus{tb: t}
		codes := []wirev1.Code{wirev1.Code_CODE_OK, wirev1.Code_CODE_OK, wirev1.Code_CODE_INTERNAL, wirev1.Code_CODE_UNAVAILABLE}
		d := New(Config{Bus: b, Logger: slog.New(slog.DiscardHandler), Log: scriptedLog(func(items []*meshv1.AppendItem) (rs []*meshv1.AppendResult) {
			for _, it := range items {
				r := &meshv1.AppendResult{Ref: it.GetRef(), Code: rapid.SampledFrom(codes).Draw(t, "code")}
				switch {
				case r.GetCode() == wirev1.Code_CODE_INTERNAL:
					checks[it.GetTopic()] = true
				case r.GetCode() != wirev1.Code_CODE_OK:
				case rapid.Bool().Draw(t, "duplicate"):
					r.Duplicate, checks[it.GetTopic()] = true, true
				default:
					heads[it.GetTopic()]++
					r.Seq, r.Epoch = heads[it.GetTopic()], 7
					if len(it.GetBody()) > maxNotice-1024 {
						checks[it.GetTopic()] = true
					} else {
						want[fmt.Sprint(it.GetTopic(), "/", r.GetSeq())] = string(it.GetBody())
					}
				}
				rs = append(rs, r)
			}
			return rs
		})})
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes := []int{0, 1, 300, 400 << 10, bus.MaxMessage}
		sink, sent := &count{}, 0
		for range rapid.IntRange(1, 5).Draw(t, "calls") {
			var items []*meshv1.AppendItem
			for ref := range rapid.IntRange(1, 12).Draw(t, "items") {
				size := rapid.SampledFrom(sizes).Draw(t, "size")
				items = append(items, &meshv1.AppendItem{
					Ref: uint64(ref), Topic: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic"), ExpiresAt: 9,
					Body: slices.Repeat([]byte{byte(ref)}, size),
				})
			}
			sent += len(items)
			d.Append(items, sink)
		}
		if err := d.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, gotChecks := map[string]string{}, map[string]bool{}
		for _, m := range b.stored {
			for _, r := range m.GetRuns() {
				for i, rec := range r.GetRecords() {
					key := fmt.Sprint(r.GetTopic(), "/", r.GetFirstSeq()+uint64(i))
					if _, twice := got[key]; twice || r.GetEpoch() != 7 || rec.GetExpiresAt() != 9 {
						t.Fatalf("%s: told twice, or wrong: %v", key, r.GetEpoch())
					}
					got[key] = string(rec.GetBody())
				}
			}
			for _, topic := range m.GetCheckTopics() {
				gotChecks[topic] = true
			}
		}
		if len(got) != len(want) || len(gotChecks) != len(checks) || sink.results != sent {
			t.Fatalf("told %d messages and %d topics of %d and %d; %d results of %d", len(got), len(gotChecks), len(want), len(checks), sink.results, sent)
		}
		for key, body := range want {
			if got[key] != body {
				t.Fatalf("%s: another body", key)
			}
		}
	})
}

// Beyond the bounds topics are told instead of messages, and beyond those nothing: counted, and
// never more memory.
func TestQueueIsBounded(t *testing.T) {
	var q queue
	for i := range maxMessages + 10 {
		item := &meshv1.AppendItem{Topic: "t"}
		if c := q.put(item, &meshv1.AppendResult{Seq: uint64(i)}); c != wirev1.Code_CODE_OK {
			t.Fatalf("message %d: %s", i, c)
		}
	}
	if len(q.messages) != maxMessages || !q.checks["t"] {
		t.Errorf("%d messages, checks %v", len(q.messages), q.checks["t"])
	}
	for i := range maxChecks {
		q.check(fmt.Sprint(i))
	}
	if c := q.check("one more"); c != wirev1.Code_CODE_QUEUE_FULL {
		t.Errorf("beyond every bound: %s", c)
	}
}

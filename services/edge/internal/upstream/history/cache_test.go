package history

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Whatever was put in, an answer is what a log would have said: everything from where it was asked,
// without a hole, but for what no log has any more.
func TestWhatIsKeptIsWhatWasRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const frame, head = 100, 400
		oldest := rapid.Uint64Range(1, 50).Draw(t, "oldest")
		read := func(from, to uint64) exchange.Range {
			r := exchange.Range{Topic: "t", From: from, Epoch: 5, Head: head, Oldest: oldest}
			for seq := max(from, oldest); seq <= to; seq++ {
				r.Messages = append(r.Messages, &exchange.Message{Topic: "t", Epoch: 5, Seq: seq, Frame: make([]byte, frame)})
			}
			return r
		}
		c := NewCache(rapid.IntRange(frame, 300*frame).Draw(t, "bytes"))
		now := time.Unix(0, 0)
		for range 100 {
			from := rapid.Uint64Range(1, head).Draw(t, "from")
			most := rapid.IntRange(1, 60*frame).Draw(t, "most")
			r, next, ok := c.Get(now, "t", rapid.SampledFrom([]uint64{0, 5}).Draw(t, "epoch"), from, most)
			switch {
			case !ok && next != 0 && next <= from:
				t.Fatalf("asked from %d, what is kept begins at %d", from, next)
			case !ok:
				to := min(from+rapid.Uint64Range(0, 60).Draw(t, "n"), head)
				if next != 0 {
					to = min(to, next-1)
				}
				c.Put(now, read(from, to))
			case r.From != from || len(r.Messages) == 0 || r.Messages[0].Seq != max(from, oldest) || len(r.Messages) > max(1, most/frame):
				t.Fatalf("asked from %d for %d bytes, got %d from %d, the first %d", from, most, len(r.Messages), r.From, r.Messages[0].Seq)
			default:
				for i, m := range r.Messages {
					if m.Seq != r.Messages[0].Seq+uint64(i) {
						t.Fatalf("message %d is %d", i, m.Seq)
					}
				}
			}
			if c.bytes > c.most {
				t.Fatalf("%d bytes of %d", c.bytes, c.most)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			c.Expire(now)
		}
		c.Expire(now.Add(cacheFor + time.Nanosecond))
		if c.bytes != 0 || len(c.topics) != 0 || c.used.Len() != 0 {
			t.Fatalf("%d bytes of %d topics are kept for ever", c.bytes, len(c.topics))
		}
	})
}

func TestANewEpochReplacesWhatIsKept(t *testing.T) {
	c, now := NewCache(0), time.Unix(0, 0)
	put := func(epoch uint64) {
		c.Put(now, exchange.Range{Topic: "t", From: 1, Epoch: epoch, Head: 1, Messages: []*exchange.Message{{Epoch: epoch, Seq: 1, Frame: []byte("x")}}})
	}
	put(5)
	put(6)
	put(5) // late
	if _, _, ok := c.Get(now, "t", 5, 1, 100); ok {
		t.Error("the old epoch is kept")
	}
	if r, _, ok := c.Get(now, "t", 6, 1, 100); !ok || r.Epoch != 6 || c.bytes != 1 {
		t.Errorf("%+v %v, %d bytes", r, ok, c.bytes)
	}
}

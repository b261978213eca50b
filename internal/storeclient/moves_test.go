package storeclient

import (
	"context"
	"testing"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// stuckPair are stores of which the second one has the upper half of the shards and answers no
// call; the client was told of the first, or of both.
func stuckPair(t *testing.T, both bool) (c *Client, well, stuck *fake) {
	t.Helper()
	a, b := newFake(t), newFake(t)
	a.own(0, 511, shards(512, last, b.addr))
	b.own(512, last, shards(0, 511, a.addr))
	b.set(func(f *fake) { f.stuck = make(chan struct{}, 1) })
	seeds := []string{a.addr}
	if both {
		seeds = append(seeds, b.addr)
	}
	c = clientThatWaits(t, waits{ask: patience, grace: defaultWaits.grace, silent: patience}, seeds...)
	wait(t, c, "both owners known", func() bool { return ownedBy(c, 0, a.addr)() && ownedBy(c, last, b.addr)() })
	return c, a, b
}

// fenced has the first store own everything, once a call waits at the second one, which hangs
// altogether.
func fenced(t *testing.T, c *Client, well, stuck *fake) {
	t.Helper()
	select {
	case <-stuck.stuck:
	case <-t.Context().Done():
		return
	}
	stuck.set(func(f *fake) { f.hang = true })
	well.own(0, last)
	c.Refresh()
}

// sessionIn finds a session whose shard fits.
func sessionIn(fits func(shard int) bool) (user string) {
	for user = "u"; !fits(topic.SessionShard(user, "s")); user += "u" {
		continue
	}
	return user
}

// Positions that wait at a store which hangs are stored by its successor, as soon as there is one:
// neither are they refused, which would end their session, nor does the hanging store hold them up.
func TestWritesFollowTheirShards(t *testing.T) {
	for name, both := range map[string]bool{"a store that was learned of": false, "a store that the client was told of": true} {
		t.Run(name, func(t *testing.T) {
			c, well, stuck := stuckPair(t, both)
			go fenced(t, c, well, stuck)
			req := &meshv1.WriteCursorsRequest{Writes: []*meshv1.SessionWrite{
				{User: sessionIn(low), Name: "s", Generation: 1}, {User: sessionIn(high), Name: "s", Generation: 1},
			}}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			resp, err := c.WriteCursors(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range resp.GetCodes() {
				if k != wirev1.Code_CODE_OK {
					t.Errorf("write %d: %s", i, code.Name(k))
				}
			}
		})
	}
}

// A call that ends because its store owns nothing any more, so that the connection is closed, was
// not cancelled by its caller: it may be tried again.
func TestCallsToAStoreThatGoesMayBeTriedAgain(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *Client) error{
		"attach": func(ctx context.Context, c *Client) error {
			_, err := c.AttachSession(ctx, &meshv1.AttachSessionRequest{User: sessionIn(high), Name: "s"})
			return err
		},
		"read": func(ctx context.Context, c *Client) error {
			return c.ReadLog(ctx, &meshv1.ReadLogRequest{Topic: topicIn(high), FromSeq: 1, ToSeq: 1}, func(*meshv1.ReadLogResponse) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, well, stuck := stuckPair(t, false)
			go fenced(t, c, well, stuck)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := call(ctx, c); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
				t.Error(err)
			}
		})
	}
}

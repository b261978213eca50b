//go:build linux

package loop

import (
	"bytes"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// What the kernel holds for a socket that takes nothing counts for the budget until it takes
// something, or ends.
func TestKernelMemoryOfStuckSocketsCounts(t *testing.T) {
	for _, send := range []SendMode{poll.ModeUring, poll.ModeWrite} {
		t.Run(string(send), func(t *testing.T) {
			l, mesh := runSending(t, Limits{QueueBytes: 64 << 10}, send)
			slow, gone := dial(t, l), dial(t, l)
			for _, c := range []*client{slow, gone} {
				c.hello(&wirev1.Hello{})
				c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
			}
			n := 0
			eventually(t, "both are stuck", func() bool {
				mesh.Send("room/1", string(bytes.Repeat([]byte{byte(n)}, 64<<10)))
				n++
				return l.Stats().Stats.Stalled == 2
			})
			eventually(t, "the kernel's memory counts", func() bool {
				s := l.Stats()
				return s.KernelBytes > 128<<10 && s.BudgetBytes > s.KernelBytes
			})
			if err := gone.Close(); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if m := slow.message(); m.GetSeq() != uint64(i+1) {
					t.Fatalf("got %d, want %d", m.GetSeq(), i+1)
				}
			}
			eventually(t, "nothing counts", func() bool {
				s := l.Stats()
				return s.Stats.Stalled == 0 && s.KernelBytes == 0 && s.BudgetBytes == 0
			})
		})
	}
}

// The kernel of stuck sockets alone is more than the budget: those that hold the most of it lose
// their connections, and give the memory back at once.
func TestKernelMemoryBeyondTheBudgetIsGivenBack(t *testing.T) {
	const budget = 8 << 20
	l, mesh := runSending(t, Limits{QueueMemory: budget}, poll.ModeAuto)
	var all []*client
	for range 8 {
		c := dial(t, l)
		c.hello(&wirev1.Hello{})
		c.subscribe(&wirev1.Subscribe{Id: 1, Filter: "talk"})
		all = append(all, c)
	}
	payload := string(bytes.Repeat([]byte("x"), 128<<10))
	eventually(t, "some pay with their connections", func() bool {
		mesh.Live(upstreamtest.Encode("talk", 0, 0, payload))
		s := l.Stats()
		return s.Closes[wirev1.Code_CODE_MEMORY_BUDGET] > 0
	})
	eventually(t, "the rest fits", func() bool { return l.Stats().BudgetBytes <= budget })
	if s := l.Stats(); s.Closes[wirev1.Code_CODE_MEMORY_BUDGET] == uint64(len(all)) {
		t.Fatal("nobody is left")
	}
}

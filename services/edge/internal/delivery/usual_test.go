package delivery

import (
	"cmp"
	"runtime"
	"time"
)

// usual are limits of a test, with those of the edge's settings that it does not mention.
func usual(l Limits) Limits {
	l.MaxFrame = cmp.Or(l.MaxFrame, 1<<20)
	l.Subscriptions = cmp.Or(l.Subscriptions, 1000)
	l.QueueMessages = cmp.Or(l.QueueMessages, 1024)
	l.QueueBytes = cmp.Or(l.QueueBytes, 1<<20)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 5*time.Second)
	l.FrameTimeout = cmp.Or(l.FrameTimeout, 30*time.Second)
	l.StuckTimeout = cmp.Or(l.StuckTimeout, 2*time.Minute)
	return l
}

// newHub makes a hub with usual limits, which lives as long as the test.
// Connections and what hangs on them lie in memory that goes back to the system with the hub, also
// where the test still looks at them.
func newHub(t tester, cfg Config) *Hub {
	cfg.Limits = usual(cfg.Limits)
	h := New(cfg)
	t.Cleanup(func() { runtime.KeepAlive(h) })
	return h
}

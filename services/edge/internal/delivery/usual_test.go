package delivery

import (
	"cmp"
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

// newHub makes a hub with usual limits.
func newHub(cfg Config) *Hub {
	cfg.Limits = usual(cfg.Limits)
	return New(cfg)
}

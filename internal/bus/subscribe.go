package bus

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// pendingBytes may wait for a subscription's handler.
const pendingBytes = 64 << 20

// entry is one subscription. It is made at once where the mesh is known, and otherwise when it
// becomes known.
type entry struct {
	subject string
	begin   func(full string) (*nats.Subscription, error)
	// sub is nil until it is made; over: it is not to be made any more. Both are guarded by
	// Bus.entering.
	sub  *nats.Subscription
	over bool
}

// enter makes a subscription, now or as soon as the mesh is known.
func (b *Bus) enter(subject string, begin func(full string) (*nats.Subscription, error)) (*entry, error) {
	e := &entry{subject: subject, begin: begin}
	b.entering.Lock()
	defer b.entering.Unlock()
	names := b.joined.Load()
	if names == nil {
		b.waiting = append(b.waiting, e)
		return e, nil
	}
	return e, b.begin(e, names)
}

// begin makes e's subscription. b.entering is held.
func (b *Bus) begin(e *entry, names *subjects) error {
	sub, err := e.begin(names.of(e.subject))
	if err != nil {
		return fmt.Errorf("nats: subscribe %s: %w", e.subject, err)
	}
	e.sub = sub
	b.drops.watch(sub)
	return nil
}

// leave ends e's part in b. It returns the subscription, which is the caller's to end; nil: there
// is none.
func (b *Bus) leave(e *entry) *nats.Subscription {
	b.entering.Lock()
	defer b.entering.Unlock()
	e.over = true
	if e.sub != nil {
		b.drops.leave(e.sub)
	}
	return e.sub
}

// limited makes a subscription of which pending messages may wait.
func (b *Bus) limited(subject string, pending int, begin func(full string) (*nats.Subscription, error)) (*entry, error) {
	return b.enter(subject, func(full string) (*nats.Subscription, error) {
		sub, err := begin(full)
		if err != nil {
			return nil, err
		}
		return sub, sub.SetPendingLimits(pending, pendingBytes)
	})
}

// Subscribe calls handle for every message, one at a time, in the order received, in a goroutine of
// the subscription. data is the handler's to keep. respond answers a request (it does nothing for a
// plain message). At most pending messages or 64 MiB wait for handle; beyond that messages are
// dropped and OnGap is told.
func (b *Bus) Subscribe(subject string, pending int, handle func(data []byte, respond func([]byte) error)) (unsubscribe func(), err error) {
	e, err := b.limited(subject, pending, func(full string) (*nats.Subscription, error) {
		return b.conn.Subscribe(full, func(m *nats.Msg) {
			handle(m.Data, func(reply []byte) error {
				if m.Reply == "" {
					return nil
				}
				return respond(m, reply)
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return func() {
		if sub := b.leave(e); sub != nil {
			_ = sub.Unsubscribe()
		}
	}, nil
}

// inboxes is what the subjects of all answers begin with.
const inboxes = "_INBOX."

// respond answers a request, but not on a subject that is no inbox: who may send requests alone
// would have others send in their name what it may not.
func respond(m *nats.Msg, reply []byte) error {
	if !strings.HasPrefix(m.Reply, inboxes) {
		return fmt.Errorf("nats: an answer is wanted on %q, which is no inbox", m.Reply)
	}
	return m.Respond(reply)
}

// Share is Subscribe as one of a group: each message reaches one of its members. leave stops taking
// messages and waits, until ctx ends, for handle to be done with those that were taken.
func (b *Bus) Share(subject, group string, pending int, handle func(data []byte)) (leave func(ctx context.Context) error, err error) {
	drained := make(chan struct{})
	e, err := b.limited(subject, pending, func(full string) (*nats.Subscription, error) {
		sub, err := b.conn.QueueSubscribe(full, group, func(m *nats.Msg) { handle(m.Data) })
		if err == nil {
			sub.SetClosedHandler(func(string) { close(drained) })
		}
		return sub, err
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		sub := b.leave(e)
		if sub == nil || sub.Drain() != nil || !b.Connected() {
			return nil // nothing comes any more
		}
		select {
		case <-drained:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("nats: leave %s: %w", subject, ctx.Err())
		}
	}, nil
}

// Serve is Subscribe for requests that one of a group of members answers. leave takes no further
// ones.
func (b *Bus) Serve(subject, group string, pending int, handle func(data []byte, respond func([]byte) error)) (leave func(), err error) {
	e, err := b.limited(subject, pending, func(full string) (*nats.Subscription, error) {
		return b.conn.QueueSubscribe(full, group, func(m *nats.Msg) { handle(m.Data, func(reply []byte) error { return respond(m, reply) }) })
	})
	if err != nil {
		return nil, err
	}
	return func() {
		if sub := b.leave(e); sub != nil {
			_ = sub.Drain()
		}
	}, nil
}

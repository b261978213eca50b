package bus

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Message of an Inbox. Its Data is the receiver's to keep.
type Message = nats.Msg

// inboxBytes may wait in an inbox, about.
const inboxBytes = 64 << 20

// Inbox takes what comes on several subjects in the order in which it came over the connection,
// whatever its subject. It is one goroutine's.
type Inbox struct {
	bus     *Bus
	ch      chan *Message
	subs    []*entry
	average int  // bytes of a message, lately
	behind  bool // too much waits: messages are thrown away until there is room
}

// Listen opens an inbox. At most pending messages, or about 64 MiB, wait in it; beyond that
// messages are dropped and OnGap is told.
func (b *Bus) Listen(pending int, subjects ...string) (*Inbox, error) {
	i := &Inbox{bus: b, ch: make(chan *Message, pending)}
	for _, subject := range subjects {
		sub, err := b.enter(subject, func(full string) (*nats.Subscription, error) { return b.conn.ChanSubscribe(full, i.ch) })
		if err != nil {
			i.Leave()
			return nil, err
		}
		i.subs = append(i.subs, sub)
	}
	return i, nil
}

// C is what came. Each message taken from it must be given to Keep.
func (i *Inbox) C() <-chan *Message { return i.ch }

// Keep reports whether m is to be handled. It is not where so much waits behind it that the
// receiver has to catch up by letting go.
func (i *Inbox) Keep(m *Message) bool {
	i.average += (len(m.Data) - i.average) / 8
	if len(m.Data) > i.average {
		i.average++
	}
	waits := len(i.ch) * i.average
	if !i.behind && waits > inboxBytes {
		i.behind = true
		i.bus.gap(wirev1.Code_CODE_OVERLOADED)
	}
	i.behind = i.behind && waits > inboxBytes/2
	return !i.behind
}

// Leave takes no further messages.
func (i *Inbox) Leave() {
	var errs []error
	for _, e := range i.subs {
		if sub := i.bus.leave(e); sub != nil {
			errs = append(errs, sub.Unsubscribe())
		}
	}
	if err := errors.Join(errs...); err != nil && i.bus.Connected() {
		i.bus.cfg.Log.Warn("NATS: unsubscribe failed", "error", err)
	}
}

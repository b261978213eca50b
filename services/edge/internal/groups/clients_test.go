package groups

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/groups/membership"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

// clients are the connections of one process, with the memberships that its loop would have.
type clients struct {
	p     *process
	ops   *serial.Queue
	end   context.CancelFunc
	ended chan struct{}
	began time.Time

	// Its goroutine's own.
	room    *membership.Groups
	jobs    walk.Jobs
	all     map[exchange.Conn]*client
	slots   uint32
	ordered bool // all clients ACK whatever they get
}

// client is a connection that is a member of the group.
type client struct {
	*membership.Member
	key  string
	life *life // nil: it has not been told that it has joined
}

// life of a membership.
type life struct {
	key         string
	began, over time.Time // over is zero while it goes on
}

// endedByNewcomers reports whether a membership was ended for none that was there before, or was
// until a moment ago.
func (f *fleet) endedByNewcomers(l *life) bool {
	for _, o := range f.lives {
		if o.key != l.key && o.began.Before(l.began) && (o.over.IsZero() || time.Since(o.over) < 15*time.Second) {
			return false
		}
	}
	return true
}

// ends notes that a membership is over, and tells whether it should have gone on.
func (c *clients) ends(m *client, conflict bool) {
	f := c.p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case m.life == nil || !m.life.over.IsZero():
		return
	case conflict && f.endedByNewcomers(m.life):
		f.t.Errorf("%s: a member with the key %q, there for %v, was ended for newcomers", c.p.id, m.key, time.Since(m.life.began))
	}
	m.life.over = time.Now()
	f.tell(message{}, "%s: a member with the key %q is over, conflict: %v", c.p.id, m.key, conflict)
}

const ackTimeout = 2 * time.Second

func newClients(p *process) *clients {
	ctx, cancel := context.WithCancel(context.Background())
	c := &clients{p: p, ops: serial.New(), end: cancel, ended: make(chan struct{}), began: time.Now(), all: map[exchange.Conn]*client{}}
	c.room = membership.New(c, p, &c.jobs, &walk.Cost{})
	go func() {
		defer close(c.ended)
		c.ops.Serve(ctx)
	}()
	go c.clock(ctx)
	return c
}

func (c *clients) stop() {
	c.end()
	<-c.ended
}

// clock gives back what is due.
func (c *clients) clock(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.do(func() {
				for _, m := range c.all {
					m.Due(c.now(), c.now()+int64(time.Second))
				}
			})
		}
	}
}

func (c *clients) now() int64 { return int64(time.Since(c.began)) + 1 }

// do has the loop do something, and tell the dispatchers what came of it.
func (c *clients) do(f func()) {
	c.ops.Do(func() {
		f()
		for c.jobs.Len() > 0 {
			c.jobs.Step()
		}
	})
}

// Policy implements membership.Delivery.
func (c *clients) Policy(string) *policy.Policy {
	return &policy.Policy{AckTimeout: ackTimeout, MaxRedeliveries: 1000}
}

// Acknowledged implements membership.Delivery.
func (c *clients) Acknowledged(*membership.Member, *exchange.Message) {}

// join makes a client that lives so long; 0: as long as the process.
func (c *clients) join(lives time.Duration) { c.joinKey(lives, "") }

func (c *clients) joinKey(lives time.Duration, key string) {
	c.do(func() {
		c.slots++
		conn := exchange.Conn{Slot: c.slots, Gen: 1}
		m := c.room.Join(conn, 1, &wirev1.Subscribe{Id: 1, Group: "g", GroupKey: key, Filter: groupFilter, Ack: true}, 32, 0, exchange.GroupStart{Mode: wirev1.Start_START_EARLIEST}, "")
		c.all[conn] = &client{Member: m, key: key}
		if lives > 0 {
			time.AfterFunc(lives, func() { c.do(func() { c.leave(conn) }) })
		}
	})
}

func (c *clients) leave(conn exchange.Conn) {
	if m := c.all[conn]; m != nil {
		delete(c.all, conn)
		c.ends(m, false)
		m.Leave()
	}
}

// joined notes that a client was told that it is a member.
func (c *clients) joined(conn exchange.Conn) {
	m := c.all[conn]
	if m == nil {
		return
	}
	f := c.p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	m.life = &life{key: m.key, began: time.Now()}
	f.lives = append(f.lives, m.life)
	f.tell(message{}, "%s: a member with the key %q has joined", c.p.id, m.key)
}

func (c *clients) post(e exchange.Event) {
	switch e := e.(type) {
	case exchange.Assigned:
		c.do(func() { c.assigned(e) })
	case exchange.GroupEnded:
		c.do(func() {
			if m := c.all[e.Conn]; m != nil {
				c.ends(m, true)
			}
			c.leave(e.Conn)
		})
	case exchange.GroupJoined:
		switch code.Of(e.Err) {
		case wirev1.Code_CODE_OK:
			c.do(func() { c.joined(e.Conn) })
		case wirev1.Code_CODE_CONFLICT:
			c.do(func() { c.leave(e.Conn) })
		default: // it comes again
			c.do(func() { c.leave(e.Conn) })
			c.join(0)
		}
	}
}

func (c *clients) assigned(e exchange.Assigned) {
	m := c.all[e.Conn]
	if m == nil {
		return // it has left, which gave them back
	}
	for i, msg := range e.Messages {
		if due := m.Assign(msg, e.Attempts[i], c.now(), true); due == 0 {
			continue
		}
		entry := &m.Live()[len(m.Live())-1]
		m.Queued(entry)
		m.Sent(msg, c.now())
		c.p.f.delivered(c.p.id, e.Conn.Slot, msg, e.Attempts[i])
		c.handle(e.Conn, msg)
	}
}

// handle is what the client does with a message.
func (c *clients) handle(conn exchange.Conn, msg *exchange.Message) {
	f := c.p.f
	does := f.upTo(99)
	if c.ordered {
		does = 99
	}
	switch {
	case does < 3: // does not ACK in time
	case does < 6:
		c.later(f.upTo(20*time.Millisecond), conn, func(m *client) { m.Nack(msg.Topic, msg.Seq, uint32(f.upTo(50))) })
	case does < 7: // its connection ends
		c.later(f.upTo(20*time.Millisecond), conn, func(*client) { c.leave(conn) })
		c.join(0)
	default:
		c.later(f.upTo(20*time.Millisecond), conn, func(m *client) {
			if m.Ack(&membership.Ack{Topic: []byte(msg.Topic), Seq: msg.Seq, Epoch: msg.Epoch}) > 0 {
				f.settled(msg)
			}
		})
	}
}

func (c *clients) later(d time.Duration, conn exchange.Conn, f func(*client)) {
	time.AfterFunc(d, func() {
		c.do(func() {
			if m := c.all[conn]; m != nil {
				f(m)
			}
		})
	})
}

func (f *fleet) delivered(edge string, slot uint32, m *exchange.Message, attempt uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := message{m.Topic, m.Epoch, m.Seq}
	f.tell(k, "%v is delivered at %s to %d, attempt %d", k, edge, slot, attempt)
	if attempt > 0 {
		return
	}
	if f.first[k] {
		f.t.Errorf("%v was delivered twice as if for the first time", k)
	}
	f.first[k] = true
}

func (f *fleet) settled(m *exchange.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := message{m.Topic, m.Epoch, m.Seq}
	f.tell(k, "%v is ACKed", k)
	f.acked[k] = true
}

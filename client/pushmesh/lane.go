package pushmesh

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxClashes bounds how often a message takes the next number because the mesh says its number is
// taken.
const maxClashes = 64

// maxFaults is how often a message is sent again after INTERNAL.
const maxFaults = 20

// maxStrays is how often the first message of a lane may be OUT_OF_ORDER before the mesh is taken
// to have forgotten the producer.
const maxStrays = 3

// outgoing is a message that has no answer yet. It belongs to its lane; guarded by Producer.mu.
type outgoing struct {
	lane    *lane
	request *pushmeshv1.PublishRequest
	size    int // of request, about
	done    func(Result, error)
	ref     uint64 // while it flies; 0: it doesn't
	seq     uint64 // producer_seq of the last time it was sent
	sentAt  time.Time
	// from when on its outcome is unknown: it was sent then for the first time with this number
	since   time.Time
	unknown bool // the mesh may have it: it keeps its number until the mesh says
	clashes int
	faults  int    // INTERNAL answers
	refusal *Error // the last one that trying again may help
	// ephemeral as the caller knows it.
	ephemeral bool
	at        time.Time // when it was published, with MaxWait
}

// lane is one topic of a producer: messages leave it in order and carry numbers without holes. When
// one is refused the lane goes back: it waits until all that flew are answered and sends again from
// the first.
type lane struct {
	topic string
	id    []byte // of the producer that numbers it
	// last is the highest number that the mesh took, or may have taken with a message that it
	// refused for good later; sure the highest one that it took; sent the highest that is in flight
	// or was.
	last, sure, sent uint64
	waiting          []*outgoing // not answered, in order; those that fly come first
	flying           int
	back             bool      // refused: nothing is sent while flying > 0
	held             time.Time // nothing is sent before
	queued           bool      // in Producer.ready
	kind             kind
	strays           int
}

// kind of a topic, known from its answers.
type kind uint8

const (
	unknownKind kind = iota
	durable
	ephemeral
)

// enqueue puts a message at the end of its lane, once there is room.
func (p *Producer) enqueue(ctx context.Context, m Message, done func(Result, error)) (*outgoing, error) {
	if e := m.check(); e != nil {
		return nil, e
	}
	o := &outgoing{request: request(m), size: m.size(), done: done, ephemeral: m.Ephemeral}
	p.mu.Lock()
	for {
		if p.closing || p.err != nil {
			defer p.mu.Unlock()
			if p.err != nil {
				return nil, p.err
			}
			return nil, ErrClosed
		}
		room := p.size < p.cfg.Buffer
		if p.credit != nil {
			if o.at = time.Now(); !room || !p.affords(o) {
				defer p.mu.Unlock()
				return nil, p.crowded(o.at)
			}
		}
		if room {
			break
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, waited(ctx, fmt.Sprintf("not published, as Buffer (%d) messages have no answer", p.cfg.Buffer), p.fault())
		}
		p.mu.Lock()
	}
	defer p.mu.Unlock()
	l := p.lane(m.Topic)
	o.lane = l
	l.waiting = append(l.waiting, o)
	p.size++
	p.queue(l)
	p.nudge()
	return o, nil
}

// lane finds or makes the lane of a topic. A producer that has numbered very many topics takes a
// new id rather than remember them all: whatever is answered may begin at 1 under it. Lanes with
// unanswered messages, Buffer at most, go on under the id that they have.
func (p *Producer) lane(topic string) *lane {
	if l := p.topics[topic]; l != nil {
		return l
	}
	if p.lanes >= p.most {
		maps.DeleteFunc(p.topics, func(_ string, l *lane) bool { return len(l.waiting) == 0 })
		p.newID()
	}
	l := &lane{topic: topic, id: p.id}
	p.topics[topic] = l
	p.lanes++
	return l
}

// queue has the sender look at a lane.
func (p *Producer) queue(l *lane) {
	if !l.queued && len(l.waiting) > l.flying {
		l.queued = true
		p.ready = append(p.ready, l)
	}
}

// next is the message of a lane to send now; nil: none yet, and at says when to look again (zero:
// when something changes).
func (l *lane) next(now time.Time) (o *outgoing, at time.Time) {
	if l.flying >= len(l.waiting) || l.back && l.flying > 0 {
		return nil, time.Time{}
	}
	if now.Before(l.held) {
		return nil, l.held
	}
	if l.back {
		l.back, l.sent = false, l.last
	}
	return l.waiting[l.flying], time.Time{}
}

// withdraw takes a message back that the mesh can't have. It reports whether it did.
func (p *Producer) withdraw(o *outgoing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.ref != 0 || o.unknown {
		return false
	}
	if !p.remove(o) {
		return false
	}
	p.resolved()
	return true
}

// roomy is how many messages a lane keeps memory for that has none.
const roomy = 8

// remove takes a message out of its lane; later ones that have not flown move up, numbers included.
// Who waits for room is woken by the caller.
func (p *Producer) remove(o *outgoing) bool {
	l := o.lane
	for i, w := range l.waiting {
		if w == o {
			copy(l.waiting[i:], l.waiting[i+1:])
			l.waiting[len(l.waiting)-1] = nil
			l.waiting = l.waiting[:len(l.waiting)-1]
			if len(l.waiting) == 0 && cap(l.waiting) > roomy {
				l.waiting = nil
			}
			p.size--
			return true
		}
	}
	return false
}

// full says that the mesh had no room or time for a message.
func full(c Code) bool {
	return c == CodeRateLimited || c == CodeOverloaded
}

// affords reports whether a message that is published now will be answered in time, by all that is
// known. Called with p.mu held, as are the next ones.
func (p *Producer) affords(o *outgoing) bool {
	return !p.tooLate(o, p.held) && p.credit.Admits(p.size, o.request.GetPriority())
}

// tooLate reports whether a message must not be sent as late as that.
func (p *Producer) tooLate(o *outgoing, at time.Time) bool {
	return p.credit != nil && at.Sub(o.at) > p.cfg.MaxWait
}

// crowded is the refusal of a message that there is no room or time for.
func (p *Producer) crowded(now time.Time) *Error {
	if !p.online {
		return &Error{Code: CodeUnavailable, Message: "there is no router, and too much waits for one", RetryAfter: p.cfg.MaxWait}
	}
	return &Error{
		Code: CodeOverloaded, Message: "the mesh does not take so much in time", RetryAfter: max(p.held.Sub(now), p.cfg.MaxWait/2),
	}
}

// learn takes how long a message waited, from its publishing on.
func (p *Producer) learn(o *outgoing, c Code, now time.Time) {
	if p.credit != nil && (c == CodeOK || full(c)) {
		p.credit.Answered(now, now.Sub(o.at), full(c))
	}
}

// expire has answered, until Close, what waited too long to be sent.
func (p *Producer) expire() {
	tick := time.NewTicker(max(p.cfg.MaxWait/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case now := <-tick.C:
			p.mu.Lock()
			p.callBack(p.expired(now))
			p.mu.Unlock()
		}
	}
}

// expired takes what should have been answered by now and was not sent. Lanes that are not ready
// wait for an answer, or have nothing to send.
func (p *Producer) expired(now time.Time) (calls []outcome) {
	for _, l := range p.ready {
		for len(l.waiting) > l.flying {
			o := l.waiting[l.flying]
			if o.unknown || !p.tooLate(o, now) {
				break // the mesh may have the one, and those behind the other are newer
			}
			p.remove(o)
			calls = append(calls, outcome{done: o.done, err: p.crowded(now)})
		}
	}
	return calls
}

// connected notes whether there is a stream.
func (p *Producer) connected(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.online = yes; yes {
		p.failure, p.reached = nil, true
		p.resolved()
	}
}

// made reports whether there has been a stream since it was asked last.
func (p *Producer) made() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	yes := p.reached
	p.reached = false
	return yes
}

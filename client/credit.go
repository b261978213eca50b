package pushmesh

import (
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// full says that the mesh had no room or time for a message.
func full(c Code) bool {
	return c == wirev1.Code_CODE_RATE_LIMITED || c == wirev1.Code_CODE_OVERLOADED
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
		return &Error{Code: wirev1.Code_CODE_UNAVAILABLE, Message: "there is no router, and too much waits for one", RetryAfter: p.cfg.MaxWait}
	}
	return &Error{
		Code: wirev1.Code_CODE_OVERLOADED, Message: "the mesh does not take so much in time", RetryAfter: max(p.held.Sub(now), p.cfg.MaxWait/2),
	}
}

// learn takes how long a message waited, from its publishing on.
func (p *Producer) learn(o *outgoing, c Code, now time.Time) {
	if p.credit != nil && (c == wirev1.Code_CODE_OK || full(c)) {
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
	if p.online = yes; yes {
		p.failure = nil
	}
	p.mu.Unlock()
}

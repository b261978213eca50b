package pushmesh

import (
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// defaultHold is how long a refusal that names no time holds sending.
const defaultHold = 50 * time.Millisecond

// results takes a batch of answers and calls back. leave says that the router wants to be left.
func (p *Producer) results(rs []*pushmeshv1.PublishStreamResponse_Result, answered *bool) (leave bool) {
	calls := make([]outcome, 0, len(rs))
	now := time.Now()
	p.mu.Lock()
	p.heard = now
	for _, r := range rs {
		o := p.refs[r.GetRef()]
		if o == nil {
			continue
		}
		code := Code(r.GetCode())
		*answered = *answered || code != CodeDraining
		p.landed(o)
		p.learn(o, code, now)
		if call, ok := p.judge(o, r, now); ok {
			calls = append(calls, call)
		}
		leave = leave || code == CodeDraining
		p.queue(o.lane)
	}
	p.callBack(calls)
	p.mu.Unlock()
	p.nudge()
	return leave
}

// landed notes that a message flies no more.
func (p *Producer) landed(o *outgoing) {
	delete(p.refs, o.ref)
	o.ref = 0
	o.lane.flying--
	p.flying--
}

// outcome of a message is what its callback is told.
type outcome struct {
	done   func(Result, error)
	result Result
	err    error
}

// judge decides what an answer means for its message and its lane; ok says that the message has its
// outcome.
func (p *Producer) judge(o *outgoing, r *pushmeshv1.PublishStreamResponse_Result, now time.Time) (call outcome, ok bool) {
	l := o.lane
	hold := r.GetRetryAfter().AsDuration()
	if hold <= 0 {
		hold = defaultHold
	}
	switch c := Code(r.GetCode()); {
	case c == CodeOK:
		return p.accepted(o, r.GetResponse())
	case c == CodeOutOfOrder:
		p.stray(o, now)
	case full(c):
		o.refusal = &Error{Code: c, Message: r.GetError(), RetryAfter: hold}
		if p.tooLate(o, now.Add(hold)) {
			return p.refused(o, &Error{Code: c, Message: r.GetError(), RetryAfter: hold}), true
		}
		l.back = true
		p.held = later(p.held, now.Add(hold)) // the limit is the producer's, not the topic's
	case c == CodeInternal:
		p.sicken(l, now)
		o.unknown = true
		if o.faults++; o.faults > maxFaults || p.ephemeral(o) {
			return p.refused(o, &Error{Code: c, Message: r.GetError(), Unknown: true}), true
		}
		l.back, l.held = true, later(l.held, now.Add(hold))
	case c.Retryable():
		p.sicken(l, now)
		o.refusal = &Error{Code: c, Message: r.GetError(), RetryAfter: hold}
		// A router whose connection to the store broke answers UNAVAILABLE, and the store may have
		// the message: it keeps its number, or it would get another one and be published twice.
		o.unknown = o.unknown || c == CodeUnavailable && !p.ephemeral(o)
		l.back, l.held = true, later(l.held, now.Add(hold))
	default:
		return p.refused(o, &Error{Code: c, Message: r.GetError()}), true
	}
	return outcome{}, false
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// accepted resolves a message that the mesh took. One that can't have been taken before but is
// called a duplicate has met the number of an earlier message whose fate was unknown: it takes the
// next number instead of that message's result.
func (p *Producer) accepted(o *outgoing, m *pushmeshv1.PublishResponse) (call outcome, ok bool) {
	l := o.lane
	l.last, l.sure = max(l.last, o.seq), max(l.sure, o.seq)
	l.strays = 0
	p.heal(l)
	if m.GetDuplicate() && !o.unknown && o.request.GetDedupeKey() == "" && o.clashes < maxClashes {
		o.clashes++
		l.back = true
		return outcome{}, false
	}
	switch { // a duplicate may have no seq any more: retention took the first
	case m.GetSeq() != 0 || m.GetScheduled() || m.GetDuplicate():
		l.kind = durable
	case m.GetEpoch() == 0:
		l.kind = ephemeral
	}
	p.remove(o)
	result := Result{ID: idOf(m.GetMessageId()), Seq: m.GetSeq(), Epoch: m.GetEpoch(), Duplicate: m.GetDuplicate(), Scheduled: m.GetScheduled()}
	return outcome{done: o.done, result: result}, true
}

// refused resolves a message that the mesh will never take. Its number goes to the next one, unless
// the mesh may have used it.
func (p *Producer) refused(o *outgoing, err *Error) outcome {
	l := o.lane
	l.back = true
	if o.unknown {
		err.Unknown = true
		l.last = max(l.last, o.seq)
	}
	p.remove(o)
	return outcome{done: o.done, err: err}
}

// stray handles OUT_OF_ORDER: normal behind a refused message; of the first message of a lane it
// means, when it does not go away, that the mesh has forgotten this producer.
func (p *Producer) stray(o *outgoing, now time.Time) {
	l := o.lane
	l.back = true
	if l.waiting[0] != o {
		return
	}
	if o.seq != l.last+1 || l.sure < l.last {
		// The mesh would have called a number that it took a duplicate: it does not have the
		// message, whose number is too high because one before it was refused for good.
		o.unknown = false
		if o.seq == l.last+1 {
			l.last-- // nor was the number of that one used
		}
		return
	}
	l.strays++
	l.held = later(l.held, now.Add(time.Duration(l.strays)*defaultHold))
	p.renew = p.renew || l.strays > maxStrays
}

// startOver takes a new producer id. Nothing flies. What the mesh may have under the old id can't
// be told apart any more: it fails rather than risk being published twice.
func (p *Producer) startOver() {
	p.renew = false
	p.newID()
	var calls []outcome
	for _, l := range p.topics {
		for _, o := range append([]*outgoing(nil), l.waiting...) {
			if o.unknown {
				calls = append(calls, p.refused(o, &Error{Code: CodeOutOfOrder, Message: "the mesh has forgotten this producer"}))
			}
		}
		l.id, l.last, l.sure, l.sent, l.back, l.strays = p.id, 0, 0, 0, false, 0
	}
	p.lanes = len(p.topics)
	p.callBack(calls)
}

// ephemeral reports whether a message must not be sent again while its outcome is unknown.
func (p *Producer) ephemeral(o *outgoing) bool { return o.ephemeral || o.lane.kind == ephemeral }

// grounded takes what flew when a stream broke back into its lanes: in order, with the numbers it
// had. What a router wanted held is nothing to the next one.
func (p *Producer) grounded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.topics {
		if l.strays == 0 {
			l.held = time.Time{}
		}
	}
	var calls []outcome
	for _, o := range p.refs {
		p.landed(o)
		o.unknown, o.lane.back = true, true
		if p.ephemeral(o) {
			calls = append(calls, p.refused(o, &Error{Code: CodeUnavailable, Message: "the stream broke before the answer"}))
		}
		p.queue(o.lane)
	}
	p.callBack(calls)
}

// end answers everything with err.
func (p *Producer) end(err error) {
	p.mu.Lock()
	p.err = err
	var calls []outcome
	for _, l := range p.topics {
		for _, o := range append([]*outgoing(nil), l.waiting...) {
			failure := err
			if o.unknown {
				failure = &Error{Code: CodeUnavailable, Message: "the producer ended before the answer", Unknown: true}
				if e := (*Error)(nil); errors.As(err, &e) {
					failure = &Error{Code: e.Code, Message: e.Message, Unknown: true}
				}
			}
			p.remove(o)
			calls = append(calls, outcome{done: o.done, err: failure})
		}
	}
	p.callBack(calls)
	p.resolved()
	p.mu.Unlock()
}

// callBack tells outcomes, and wakes who waits for room first: once for all, since that is as dear
// as a message. p.mu, which the caller holds, is let go meanwhile. Flush waits for the callbacks
// too.
func (p *Producer) callBack(calls []outcome) {
	if len(calls) == 0 {
		return
	}
	p.calling += len(calls)
	p.resolved()
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.calling -= len(calls)
		p.resolved()
	}()
	for i := range calls {
		calls[i].done(calls[i].result, calls[i].err)
	}
}

package admission

import (
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
)

const (
	// forgiven is how many refusals a second, and at once, every producer has free: one that waits
	// when it is told to needs few.
	forgiven = 100
	// A producer that has used them up, and comes nevertheless, is kept waiting for so long with
	// each further refusal.
	leastPenalty = 10 * time.Millisecond
	mostPenalty  = 250 * time.Millisecond
	// mostCallPenalty is how long one of many calls at once is kept waiting.
	mostCallPenalty = time.Second
)

// refuse counts a refusal, and charges the producer for it.
func (a *Admission) refuse(now time.Time, producer string, n int, why reason, err *code.Error) error {
	a.refused[why].Add(float64(n))
	if producer != "" {
		a.budget(now, producer, nil).charge(now, n)
	}
	return err
}

// Stored refuses a durable message of a call that was admitted without its topic, where the topic's
// store can't keep up.
func (a *Admission) Stored(now time.Time, q Ask) error {
	if why, err := a.stored(q.Topic, q.priority()); err != nil {
		return a.refuse(now, q.Producer, q.Messages, why, err)
	}
	return nil
}

// Penalty is how long a producer that was just refused is to be kept waiting: not read from, or not
// answered. It is 0 unless the producer goes on sending what is refused, so that its refusals can't
// cost more than a share of what it may send.
func (a *Admission) Penalty(now time.Time, producer string) time.Duration {
	return a.budget(now, producer, nil).remainingPenalty(now)
}

// CallPenalty is Penalty for a call that was just refused, beside which others of the producer may
// wait: they are answered one after the other, at the producer's rate. So somebody with thousands
// of calls at once is not answered thousands of times in each penalty.
func (a *Admission) CallPenalty(now time.Time, producer string) time.Duration {
	b := a.budget(now, producer, nil)
	wait := b.remainingPenalty(now)
	if wait == 0 {
		return 0
	}
	return max(wait, b.place(now))
}

// place is how long the next one of the calls that wait for their penalty waits.
func (b *budget) place(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.answered.Before(now) {
		b.answered = now
	}
	_, _, perSecond := b.penalty.left(now)
	next := b.answered.Add(time.Duration(float64(time.Second) / perSecond))
	if last := now.Add(mostCallPenalty); next.After(last) {
		next = last
	}
	b.answered = next
	return next.Sub(now)
}

// charge takes n refusals from those that are forgiven: as many a second as the producer may send
// messages, and two windows at once.
func (b *budget) charge(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.penalty == nil {
		b.penalty = newTokens(max(b.limits.Rate, forgiven), max(2*b.limits.InFlight, forgiven))
	}
	b.penalty.take(now, n)
}

func (b *budget) remainingPenalty(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.penalty == nil {
		return 0
	}
	left, most, perSecond := b.penalty.left(now)
	if left >= 1 {
		return 0
	}
	missing := most/4 - left
	wait := time.Duration(missing / perSecond * float64(time.Second))
	return min(max(wait, leastPenalty), mostPenalty)
}

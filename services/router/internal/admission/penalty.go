package admission

import (
	"time"

	"golang.org/x/time/rate"

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

// charge takes n refusals from those that are forgiven: as many a second as the producer may send
// messages, and two windows at once.
func (b *budget) charge(now time.Time, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.penalty == nil {
		b.penalty = rate.NewLimiter(rate.Limit(max(b.limits.Rate, forgiven)), max(2*b.limits.InFlight, forgiven))
	}
	if !b.penalty.AllowN(now, n) {
		b.penalty.AllowN(now, int(max(b.penalty.TokensAt(now), 0)))
	}
}

func (b *budget) remainingPenalty(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.penalty == nil {
		return 0
	}
	tokens := b.penalty.TokensAt(now)
	if tokens >= 1 {
		return 0
	}
	missing := float64(b.penalty.Burst())/4 - tokens
	wait := time.Duration(missing / float64(b.penalty.Limit()) * float64(time.Second))
	return min(max(wait, leastPenalty), mostPenalty)
}

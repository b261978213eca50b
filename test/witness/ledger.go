package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
)

// ledger knows what was said of the messages of one topic.
type ledger struct {
	topic string

	mu           sync.Mutex
	acknowledged map[int]bool
	unknown      int
	arrived      map[int]bool
	last         int // that arrived
	disorder     error
	done         bool // nothing is published any more
	whole        chan struct{}

	answered, received     time.Time     // the last of each
	publishGap, deliverGap time.Duration // the longest of the window
}

func newLedger(topic string) *ledger {
	now := time.Now()
	return &ledger{topic: topic, acknowledged: map[int]bool{}, arrived: map[int]bool{}, whole: make(chan struct{}), answered: now, received: now}
}

func (l *ledger) subscribe(ctx context.Context, edge string) (*pushmesh.Subscriber, error) {
	sub, err := pushmesh.NewSubscriber(pushmesh.SubscriberConfig{
		Addrs: []string{edge}, ClientID: "witness-" + strconv.FormatInt(time.Now().UnixNano(), 36), Heartbeat: time.Second, MaxBackoff: time.Second, DialTimeout: 3 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	_, err = sub.Subscribe(ctx, l.topic, func(_ context.Context, d *pushmesh.Delivery) error {
		n, err := strconv.Atoi(string(d.Payload))
		if err == nil {
			l.arrive(n)
		}
		return nil
	}, pushmesh.WithAck())
	return sub, err
}

// publish publishes until it is told to end. A call that fails is of unknown outcome, and its
// message is not published again.
func (l *ledger) publish(ctx context.Context, p *pushmesh.Producer, every time.Duration, ended <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-ended:
			l.end()
			return
		}
		_, err := p.Publish(ctx, pushmesh.Message{Topic: l.topic, Payload: []byte(strconv.Itoa(n))})
		l.answer(n, err)
	}
}

func (l *ledger) answer(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.unknown++
		return
	}
	now := time.Now()
	l.publishGap = max(l.publishGap, now.Sub(l.answered))
	l.answered = now
	l.acknowledged[n] = true
}

func (l *ledger) arrive(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.deliverGap = max(l.deliverGap, now.Sub(l.received))
	l.received = now
	if n <= l.last && !l.arrived[n] && l.disorder == nil {
		l.disorder = fmt.Errorf("%s: %d arrived after %d", l.topic, n, l.last)
	}
	l.last = max(l.last, n)
	l.arrived[n] = true
	l.check()
}

func (l *ledger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	l.check()
}

// check closes whole once all that was acknowledged has arrived; mu is held.
func (l *ledger) check() {
	if !l.done {
		return
	}
	select {
	case <-l.whole:
		return
	default:
	}
	for n := range l.acknowledged {
		if !l.arrived[n] {
			return
		}
	}
	close(l.whole)
}

func (l *ledger) complete() <-chan struct{} { return l.whole }

// window returns the longest time without an answer and without an arrival since the last call.
func (l *ledger) window() (publish, deliver time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	publish, deliver = max(l.publishGap, now.Sub(l.answered)), max(l.deliverGap, now.Sub(l.received))
	l.publishGap, l.deliverGap = 0, 0
	l.answered, l.received = now, now
	return publish, deliver
}

func (l *ledger) judge() (acknowledged, arrived, unknown int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing, first := 0, 0
	for n := range l.acknowledged {
		if !l.arrived[n] {
			missing++
			if first == 0 || n < first {
				first = n
			}
		}
	}
	err = l.disorder
	if missing > 0 {
		err = fmt.Errorf("%s: %d messages that were acknowledged did not arrive, the first is %d", l.topic, missing, first)
	}
	return len(l.acknowledged), len(l.arrived), l.unknown, err
}

package promise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

const (
	// settleWithin is how long after the last fault everything must be answered, and what is owed
	// delivered, at most.
	settleWithin = 4 * time.Minute
	// streams and topics of a play.
	streams        = 3
	topicsOfStream = 4
)

// Play is who publishes and who listens.
type Play struct {
	Routers, Edges []string
	Seed           uint64
	// Rate of each of three publishers, in messages a second; a fourth publishes one at a time.
	Rate int
	// Lives is how long subscribers keep a connection, on average; 0: as long as it lasts.
	Lives time.Duration
	Logf  func(format string, args ...any)
	// Known waits until every process of the mesh goes by that version of the namespaces, or a
	// later one.
	Known func(ctx context.Context, version uint64) error
	// Killed tells when each edge was killed, by its id; nil: none is.
	Killed func() map[string][]time.Time
	// Groups says what the edges know of groups, for the log, where something is missing at the
	// end; nil: nobody can be asked.
	Groups func(ctx context.Context) string
	// Settle is how long subscribers may take for what they are still owed at the end; 0: 4
	// minutes.
	Settle time.Duration

	topics  []string
	pace    pace
	offers  offers
	subs    []*subscriber
	publish sync.WaitGroup
	listen  sync.WaitGroup
	errs    chan error
	quiet   context.CancelFunc // ends publishing
	leave   context.CancelFunc // ends listening
}

// prefixes of the play's namespaces: one that is made at run time, so that a process which does not
// know it would take its topics for ephemeral ones, and one under a prefix that comes with every
// mesh.
func (p *Play) prefixes() []string {
	name := fmt.Sprintf("promise-%d", p.Seed)
	return []string{"own-" + name + "/" + name, "room/" + name}
}

// filter matches the topics of all prefixes, and no others.
func (p *Play) filter() string { return fmt.Sprintf("+/promise-%d/+", p.Seed) }

// #nosec G404 -- repeatable
func (p *Play) rand(n uint64) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, n)) }

// Start lets subscribers in, waits until all of them are, and begins to publish.
func (p *Play) Start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if p.Settle == 0 {
		p.Settle = settleWithin
	}
	talk, quiet := context.WithCancel(ctx)
	heard, leave := context.WithCancel(ctx)
	p.quiet, p.leave, p.errs = quiet, leave, make(chan error, streams+1)
	for _, prefix := range p.prefixes() {
		if err := p.namespace(ctx, prefix); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	var perStream [streams + 1][]string
	for s := range perStream {
		for i := range topicsOfStream {
			perStream[s] = append(perStream[s], fmt.Sprintf("%s/%d-%d", p.prefixes()[i%2], s, i))
		}
		p.topics = append(p.topics, perStream[s]...)
	}
	for i, h := range p.habits() {
		sub := newSubscriber(h, p.Edges, p.rand(uint64(i)+1))
		p.subs = append(p.subs, sub)
		p.listen.Go(func() { sub.run(heard) })
	}
	p.listen.Go(func() { p.pace.run(heard) })
	deadline := time.After(settleWithin)
	for _, sub := range p.subs {
		select {
		case <-sub.ready:
		case <-deadline:
			return fmt.Errorf("%s: not subscribed within %s", sub.name, settleWithin)
		}
	}
	for s := range streams {
		p.publish.Go(func() {
			p.errs <- publishStream(talk, &p.offers, p.Routers, perStream[s], p.Rate, p.rand(uint64(100+s)))
		})
	}
	p.publish.Go(func() {
		p.errs <- publishUnary(talk, &p.offers, p.Routers, perStream[streams], fmt.Sprint(p.Seed), p.rand(99))
	})
	return nil
}

// habits of the subscribers: sessions by topic and by filter, quick and late ones, small and large
// windows, and plain clients that remember their own positions, and two groups: one by load, of
// which each member has two filters on its connection, and one by topic.
func (p *Play) habits() (all []habits) {
	wild := []string{p.filter()}
	var parts []string // the same topics, in two filters
	for _, prefix := range p.prefixes() {
		parts = append(parts, prefix+"/+")
	}
	for i, window := range []uint32{8, 64, 512} {
		all = append(all,
			habits{name: fmt.Sprintf("exact-%d", i), filters: p.topics, session: true, window: window, late: i, lives: p.Lives},
			habits{name: fmt.Sprintf("wild-%d", i), filters: wild, session: true, window: window, late: i, lives: 2 * p.Lives})
	}
	for i := range 2 {
		all = append(all, habits{name: fmt.Sprintf("plain-%d", i), filters: p.topics, lives: p.Lives})
	}
	for i := range 3 {
		all = append(all,
			habits{name: fmt.Sprintf("load-%d", i), filters: parts, group: "load", window: 32, late: 1, lives: p.Lives},
			habits{name: fmt.Sprintf("topic-%d", i), filters: wild, group: "topic", sticky: true, window: 32, late: 1, lives: p.Lives})
	}
	for i := range all {
		all[i].topics = p.topics
		if all[i].acks() {
			all[i].poison = poison
		}
	}
	return all
}

// Offered and answered so far.
func (p *Play) Offered() (offered, answered int) { return p.offers.count() }

// Quiet stops the publishers: what was offered is still answered.
func (p *Play) Quiet() { p.quiet() }

// End stops the publishers, waits until everyone has what is owed or nothing has come for a long
// time, and returns the history. An error is a publisher that could not go on, or a log that can't
// be read; what is missing is for the judge.
func (p *Play) End(ctx context.Context) (*History, error) {
	p.Quiet()
	p.publish.Wait()
	var errs []error
	for range streams + 1 {
		errs = append(errs, <-p.errs)
	}
	h := &History{Published: p.offers.list(), Log: map[string][]Stored{}, Poison: poison, MaxAttempts: maxAttempts}
	reading, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for _, topic := range p.topics {
		log, err := p.readLog(reading, topic)
		errs = append(errs, err)
		h.Log[topic] = log
	}
	p.settle(ctx, h)
	letters, err := p.letters(ctx, h)
	h.Letters = letters
	errs = append(errs, err)
	p.leave()
	p.listen.Wait()
	h.Slowness = p.pace.slowness()
	if p.Killed != nil {
		h.Killed = p.Killed()
	}
	p.Logf("the machine was %.1f times slower than is allowed for", h.Slowness)
	for _, sub := range p.subs {
		h.Diaries = append(h.Diaries, &sub.diary)
	}
	return h, errors.Join(errs...)
}

// readLog reads a whole topic through whichever router answers.
func (p *Play) readLog(ctx context.Context, topic string) (log []Stored, err error) {
	err = p.ask(ctx, func(ctx context.Context, r router) error {
		stream, err := r.history.Read(ctx, &pushmeshv1.ReadRequest{Topic: topic, FromSeq: uint64(len(log)) + 1})
		if err != nil {
			return err
		}
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			for _, m := range res.GetMessages() {
				id, intact := identify(m.GetPayload())
				log = append(log, Stored{Epoch: m.GetEpoch(), Seq: m.GetSeq(), ID: id, Intact: intact})
			}
		}
	})
	return slices.Clip(log), err
}

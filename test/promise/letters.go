package promise

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxAttempts of the play's namespace, and ackTimeout: far more than connections break under a
// message that nobody refuses, and than a busy machine has its client be late on each of them.
const (
	maxAttempts = 20
	ackTimeout  = 3 * time.Second
)

// poison says which messages sessions always refuse: about one in 400.
func poison(id uint64) bool { return id%397 == 0 }

// namespace of the play: what is refused soon ends as a dead letter. It is known everywhere before
// anything is published.
func (p *Play) namespace(ctx context.Context, prefix string) error {
	redeliveries := uint32(maxAttempts - 1)
	var version uint64
	err := p.ask(ctx, func(ctx context.Context, r router) error {
		res, err := r.namespaces.Put(ctx, &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
			Prefix: prefix, Policy: &pushmeshv1.Policy{
				Durable: true, Retention: durationpb.New(24 * time.Hour), AckTimeout: durationpb.New(ackTimeout),
				MaxRedeliveries: &redeliveries, MaxAttempts: maxAttempts,
			},
		}})
		version = res.GetNamespace().GetVersion()
		return err
	})
	if err != nil {
		return err
	}
	return p.Known(ctx, version)
}

// refusal is a message that a session or a group refuses to the end.
type refusal struct {
	who string
	at  place
}

// letters waits until every session and group has a dead letter for each poisonous message of the
// log, and returns what there is then, or when the time is over.
func (p *Play) letters(ctx context.Context, h *History) (all []Letter, err error) {
	refusing := map[string]bool{} // sessions and groups
	for _, sub := range p.subs {
		if sub.acks() {
			refusing[cmp.Or(sub.group, sub.name)] = true
		}
	}
	want := map[refusal]bool{} // those that are not there yet
	for _, topic := range p.topics {
		for _, m := range h.Log[topic] {
			for who := range refusing {
				if poison(m.ID) {
					want[refusal{who, place{topic, m.Epoch, m.Seq}}] = true
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.Settle+settleWithin)
	defer cancel()
	over := time.After(p.Settle) // for waiting, not for an answer that is under way
	for {
		if all, err = p.listed(ctx); err != nil {
			return nil, err
		}
		for _, l := range all {
			delete(want, refusal{l.Session, place{l.Topic, l.Epoch, l.Seq}})
		}
		if len(want) == 0 {
			return all, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-over:
			one := slices.Collect(maps.Keys(want))[0]
			p.Logf("%d dead letters are not there after %s, that of %s for %v among them", len(want), p.Settle, one.who, one.at)
			return all, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// listed are the dead letters that there are.
func (p *Play) listed(ctx context.Context) (all []Letter, err error) {
	if err := p.ask(ctx, func(ctx context.Context, r router) (err error) {
		all, err = listLetters(ctx, r.letters, p.filter())
		return err
	}); err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return all, nil
}

// whose letter it is: a client's session, or a group, whose name stands before its filter.
func whose(l *pushmeshv1.DeadLetter) string {
	if client, ok := strings.CutPrefix(l.GetUser(), "client:"); ok {
		return client
	}
	group, _, _ := strings.Cut(l.GetSession(), "/")
	return group
}

func listLetters(ctx context.Context, api pushmeshv1.DeadLetterServiceClient, filter string) (all []Letter, err error) {
	for page := ""; ; {
		res, err := api.List(ctx, &pushmeshv1.DeadLetterServiceListRequest{Filter: filter, Limit: 1000, PageToken: page})
		if err != nil {
			return nil, err
		}
		for _, l := range res.GetDeadLetters() {
			all = append(all, Letter{
				Session: whose(l), Topic: l.GetTopic(), Epoch: l.GetEpoch(), Seq: l.GetSeq(), Attempts: l.GetAttempts(),
			})
		}
		if page = res.GetNextPageToken(); page == "" {
			return all, nil
		}
	}
}

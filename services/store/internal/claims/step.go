package claims

import (
	"context"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/book"
	"github.com/pushmesh/pushmesh/services/store/internal/claims/prepare"
)

func (l *Lane) rules(resource string) *policy.Claims { return l.cfg.Policies().For(resource).Claims }

// meet reports to the book which nodes came and went.
func (l *Lane) meet(now uint64, b *batch) {
	for _, n := range b.nodes {
		if n.here {
			l.book.NodeUp(now, n.name, n.incarnation)
		} else {
			l.book.NodeDown(now, n.name)
		}
	}
}

// commit puts a step into the database, and learns what time it is there. A planned stop does not
// cut it off.
func (l *Lane) commit(step *book.Step) error {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	begun := time.Now()
	now, err := l.writer.Commit(ctx, &step.Changes)
	l.committed = time.Now()
	if err != nil {
		l.metrics.failures.Inc()
		return err
	}
	if err := l.clock.note(begun, l.committed, now); err != nil {
		return err
	}
	l.metrics.committed(step, l.committed.Sub(begun))
	return nil
}

// fail answers a step that may or may not be in the database.
func (l *Lane) fail(step *book.Step) {
	for _, a := range step.Answers {
		l.refuse([]*op{a.Ref.(*op)}, errAway)
	}
}

// report sends the answers and notices of a committed step, and starts the calls that it asks for.
func (l *Lane) report(step *book.Step) {
	words, answered := map[*stream][]word{}, map[*stream]int{}
	l.mu.Lock()
	next := 0
	answers := func(before int) {
		for ; next < before; next++ {
			a := &step.Answers[next]
			o := a.Ref.(*op)
			words[o.from] = append(words[o.from], word{result: &meshv1.ClaimResult{
				Ref: o.GetRef(), Code: a.Code, Error: a.Error, RetryAfterMs: uint32(a.RetryAfter.Milliseconds()), State: a.State,
			}})
			answered[o.from]++
		}
	}
	for _, p := range step.Pushes {
		answers(p.After)
		if s := l.nodes[p.Node]; s != nil { // else it asks when it comes
			words[s] = append(words[s], word{push: p.ClaimPush})
		}
	}
	answers(len(step.Answers))
	l.mu.Unlock()
	for s, ws := range words {
		if !s.put(ws, answered[s]) {
			l.leave(s) // its handler may hang for as long as the node does
		}
	}
	for _, p := range step.Prepare {
		l.prepare(p)
	}
}

// prepare has a resource got ready.
func (l *Lane) prepare(p book.Prepare) {
	running := l.running
	l.cfg.Prepare(prepare.Job{
		Context: running, Resource: p.Resource, Owner: p.Owner, Token: p.Token, How: p.Prepare,
		Done: func(c wirev1.Code) {
			if c != wirev1.Code_CODE_OK && running.Err() == nil {
				l.cfg.Log.Debug("the call before the grant of a resource failed", "resource", p.Resource, "code", code.Name(c))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if running.Err() == nil {
				l.prepared = append(l.prepared, prepared{running: running, key: p.Key, token: p.Token, ok: c == wirev1.Code_CODE_OK})
				signal(l.kick)
			}
		},
	})
}

// Package asker asks, off the event loops, what users may do that their rights do not allow.
// Addresses take turns (package crowd), so that who wants very much waits for itself.
package asker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/crowd"
)

// Hook says what users may do; see permission.Hook.
type Hook interface {
	Known(q *identity.Question) (identity.Permission, bool)
	Ask(ctx context.Context, q *identity.Question) (identity.Permission, error)
	Timeout() time.Duration
}

// Config of an Asker.
type Config struct {
	Hook Hook
	// Post brings an event to a loop's mailbox; false where that is full.
	Post func(loop uint16, e exchange.Event) bool
	// UnderWay is how many questions are asked, or wait for their turn in the hook, at a time;
	// Waiting how many wait for that. 0: 1,024 and 4,096.
	UnderWay, Waiting int
}

// Asker is a lifecycle.Part and a permissions.Asker.
type Asker struct {
	*crowd.Crowd[asked]
	cfg Config
}

type asked struct {
	conn     exchange.Conn
	serial   uint64
	question identity.Question
	have     time.Duration
}

// New makes an asker. It takes questions from Start on.
func New(cfg Config) *Asker {
	a := &Asker{cfg: cfg}
	a.Crowd = crowd.New(crowd.Config[asked]{
		Name: "permission", Do: a.do, UnderWay: cfg.UnderWay, Waiting: cfg.Waiting,
		GaveWay: func(q asked) { a.post(q, identity.Permission{}, busy()) },
	})
	return a
}

// Known implements permissions.Asker.
func (a *Asker) Known(q *identity.Question) (identity.Permission, bool) { return a.cfg.Hook.Known(q) }

// Patience implements permissions.Asker: an answer needs a turn, and the backend's time.
func (a *Asker) Patience() time.Duration { return 3*a.cfg.Hook.Timeout() + time.Second }

var stopped = code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")

// busy refuses a question for want of room. Not everybody comes back at once.
func busy() *code.Error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second+rand.N(2*time.Second), "too many permissions are to be asked for at this time")
}

// Ask implements permissions.Asker.
func (a *Asker) Ask(conn exchange.Conn, serial uint64, q *identity.Question, have time.Duration) *code.Error {
	switch a.Enter(q.Address, asked{conn, serial, *q, have}) {
	case crowd.Full:
		return busy()
	case crowd.Stopped:
		return stopped
	}
	return nil
}

func (a *Asker) do(ctx context.Context, q asked) {
	// another connection may have asked meanwhile
	if says, known := a.cfg.Hook.Known(&q.question); known && says.Left > q.have {
		a.post(q, says, nil)
		return
	}
	says, err := a.cfg.Hook.Ask(ctx, &q.question)
	if err != nil {
		a.post(q, identity.Permission{}, code.From(err))
		return
	}
	a.post(q, says, nil)
}

// post tells the loop. Where its mailbox is full the loop gives up waiting by itself.
func (a *Asker) post(q asked, says identity.Permission, why *code.Error) {
	a.cfg.Post(q.conn.Loop, exchange.Permitted{Conn: q.conn, Serial: q.serial, Says: says, Why: why})
}

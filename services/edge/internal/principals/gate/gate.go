// Package gate finds out, off the event loops, who an edge's clients are: by the tokens that they
// show, or by what a backend says of them. So many are
// under way, and addresses take turns (package crowd): who shows very many bad tokens waits for
// itself.
package gate

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/internal/identity/hook"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/crowd"
	"github.com/pushmesh/pushmesh/services/edge/internal/principals"
)

// Verifier tells who a token is of; see token.Verifier.
type Verifier interface {
	Verify(ctx context.Context, token string) (*identity.Principal, error)
	// Known is who a token is of that was found good before, and still is; nil: that is to be
	// found out. It does not wait.
	Known(token string) *identity.Principal
}

// Backend tells who somebody is; see hook.Hook.
type Backend interface {
	Ask(ctx context.Context, q *hook.Question) (*identity.Principal, error)
	Known(q *hook.Question) *identity.Principal
}

// Nameless says what becomes of clients that show no token.
type Nameless string

// What may become of them.
const (
	Refuse Nameless = "refuse"
	Warn   Nameless = "warn" // they are let in, and the log says so once in a while
	Accept Nameless = "accept"
)

// Config of a Gate.
type Config struct {
	// Verifier is nil where no issuers are known, Backend where none is asked. With both, what has
	// the form of a signed token is the Verifier's to judge alone.
	Verifier Verifier
	Backend  Backend
	// Edge is the edge's id, as the backend is told.
	Edge     string
	Nameless Nameless
	// Post brings an event to a loop's mailbox; false where that is full.
	Post func(loop uint16, e exchange.Event) bool
	Log  *slog.Logger
	// UnderWay is how many tokens are checked at a time, those that wait for keys among them;
	// Waiting how many wait for that, with 12 KiB each at most. 0: 1,024 and 4,096.
	UnderWay, Waiting int
}

// Gate is a lifecycle.Part and a principals.Door.
type Gate struct {
	*crowd.Crowd[asked]
	cfg      Config
	warned   atomic.Int64 // when the log told last of a client without a token, Unix s
	nameless atomic.Uint64
}

// asked is a client of which it is to be found out who it is.
type asked struct {
	conn  exchange.Conn
	shown principals.Shown
}

// timeout is how long a token may be checked for; the time of a Hello ends it before, mostly.
const timeout = 30 * time.Second

// New makes a gate. It takes tokens from Start on.
func New(cfg Config) *Gate {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{cfg: cfg}
	g.Crowd = crowd.New(crowd.Config[asked]{
		Name: "token", Do: g.check, UnderWay: cfg.UnderWay, Waiting: cfg.Waiting,
		GaveWay: func(a asked) { cfg.Post(a.conn.Loop, exchange.Identified{Conn: a.conn, Why: busy()}) },
	})
	return g
}

// Stats of a gate.
type Stats struct {
	crowd.Stats        // GaveWay: tokens that were refused because too many were to be checked
	Nameless    uint64 // clients without a token that were let in
}

// Stats may be called at any time.
func (g *Gate) Stats() Stats { return Stats{Stats: g.Crowd.Stats(), Nameless: g.nameless.Load()} }

var (
	noToken = code.New(wirev1.Code_CODE_UNAUTHENTICATED, "Hello has no token, and this edge lets nobody in without (--clients-without-token)")
	stopped = code.New(wirev1.Code_CODE_DRAINING, "the edge is stopping")
)

// busy refuses a token for want of room. Not everybody comes back at once.
func busy() *code.Error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second+rand.N(2*time.Second), "too many tokens are to be checked at this time")
}

// warnEvery is how often the log tells of clients without a token.
const warnEvery = 10 * time.Second

// Nameless implements principals.Door.
func (g *Gate) Nameless() *code.Error {
	if g.cfg.Nameless == Refuse || g.cfg.Nameless == "" {
		return noToken
	}
	n := g.nameless.Add(1)
	if now, last := time.Now().Unix(), g.warned.Load(); g.cfg.Nameless == Warn && now-last >= int64(warnEvery.Seconds()) && g.warned.CompareAndSwap(last, now) {
		g.cfg.Log.Warn("clients come in without a token, and belong to whatever client id they say (--clients-without-token)", "so_far", n)
	}
	return nil
}

// Asks implements principals.Door.
func (g *Gate) Asks() bool { return g.cfg.Backend != nil }

// byBackend reports whether the backend says who somebody is.
func (g *Gate) byBackend(s principals.Shown) bool {
	const dots = 2 // of a signed token
	return g.cfg.Backend != nil && (g.cfg.Verifier == nil || strings.Count(s.Token, ".") != dots)
}

func (g *Gate) question(s principals.Shown) *hook.Question {
	return &hook.Question{Token: s.Token, Client: s.ClientID, Session: s.Session, Address: s.From, Edge: g.cfg.Edge, Cookie: s.Cookie}
}

func (g *Gate) known(s principals.Shown) *identity.Principal {
	if g.byBackend(s) {
		return g.cfg.Backend.Known(g.question(s))
	}
	return g.cfg.Verifier.Known(s.Token)
}

func (g *Gate) find(ctx context.Context, s principals.Shown) (*identity.Principal, error) {
	if g.byBackend(s) {
		return g.cfg.Backend.Ask(ctx, g.question(s))
	}
	return g.cfg.Verifier.Verify(ctx, s.Token)
}

// Identify implements principals.Door.
func (g *Gate) Identify(conn exchange.Conn, s principals.Shown) (who *identity.Principal, why *code.Error, known bool) {
	if who := g.known(s); who != nil {
		return who, nil, true
	}
	switch g.Enter(s.From, asked{conn, s}) {
	case crowd.Full:
		return nil, busy(), true
	case crowd.Stopped:
		return nil, stopped, true
	}
	return nil, nil, false
}

func (g *Gate) check(ctx context.Context, a asked) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := exchange.Identified{Conn: a.conn}
	who, err := g.find(ctx, a.shown)
	if err != nil {
		answer.Why = code.From(err)
	} else {
		answer.Who = who
	}
	g.cfg.Post(a.conn.Loop, answer)
}

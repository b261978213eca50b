package backends

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/token"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// every is how often the file is looked at, and whose time is over. A change is taken once two
// looks have seen the same, which is within the 2 s that are promised.
const every = 750 * time.Millisecond

// Config of a Keeper.
type Config struct {
	Path    string
	Issuers []token.Issuer
	// Follow, if any, tells the issuers of now in place of Issuers.
	Follow func() []token.Issuer
	Log    *slog.Logger
}

// Keeper has the backends file read again when it changes, and ends the calls of those who lose by
// that. It is a lifecycle.Part, and safe for concurrent use.
type Keeper struct {
	cfg     Config
	now     func() time.Time
	current atomic.Pointer[Set]
	fault   atomic.Pointer[error] // of the file as it is now; nil: none
	taken   atomic.Uint64
	failed  atomic.Uint64
	ended   atomic.Uint64
	seen    [sha256.Size]byte // of the file as it was taken last, or of why it could not be; look's
	last    [sha256.Size]byte // the same of the last look
	group   *lifecycle.Group

	mu   sync.Mutex // current is stored with it
	held map[*Caller]struct{}
}

// Caller is who makes a call that may last.
type Caller struct {
	proof Proof
	who   atomic.Pointer[Identity]
	until time.Time // zero: for good; the Keeper's
	end   func(error)
}

// NewCaller makes the Caller of a call that does not last.
func NewCaller(who *Identity) *Caller {
	c := &Caller{}
	c.who.Store(who)
	return c
}

// Who is the identity as it is now.
func (c *Caller) Who() *Identity { return c.who.Load() }

// Open reads the file, which must be good.
func Open(cfg Config) (*Keeper, error) {
	k := &Keeper{cfg: cfg, now: time.Now, held: map[*Caller]struct{}{}}
	s, sum, err := k.read()
	if err != nil {
		return nil, err
	}
	k.seen = sum
	k.current.Store(s)
	return k, nil
}

func (k *Keeper) read() (*Set, [sha256.Size]byte, error) {
	data, err := token.ReadFile(k.cfg.Path, MaxFile)
	if err != nil {
		return nil, sha256.Sum256([]byte(err.Error())), err
	}
	issuers := k.cfg.Issuers
	if k.cfg.Follow != nil {
		issuers = k.cfg.Follow()
	}
	sum := sumOf(data, issuers)
	if sum == k.seen && k.current.Load() != nil {
		return nil, sum, nil
	}
	s, err := Parse(data, issuers)
	if err != nil {
		err = fmt.Errorf("%s: %w", k.cfg.Path, err)
	}
	return s, sum, err
}

// sumOf is of a file's content, and of what it says of issuers.
func sumOf(data []byte, issuers []token.Issuer) [sha256.Size]byte {
	one := sha256.Sum256(data)
	var names []string
	for _, is := range issuers {
		names = append(names, fmt.Sprintf("%q %q", is.Name, is.UserPrefix))
	}
	slices.Sort(names)
	return sha256.Sum256(fmt.Append(one[:], names))
}

// Start implements lifecycle.Part.
func (k *Keeper) Start(context.Context) error {
	k.group = lifecycle.NewGroup(context.Background())
	k.group.Go("backends file", func(ctx context.Context) {
		lifecycle.Every(ctx, every, func(time.Time) { k.look() })
	})
	return nil
}

// Stop implements lifecycle.Part.
func (k *Keeper) Stop(ctx context.Context) error { return k.group.Stop(ctx) }

// look takes what the file says now, where that is new and good; what is not good is told once, and
// what it said before stays. What changes from look to look is being written. Calls whose time is
// over end.
func (k *Keeper) look() {
	s, sum, err := k.read()
	again := sum == k.seen || sum != k.last
	if k.last = sum; !again {
		k.seen = sum
	}
	switch {
	case again:
	case err != nil:
		k.failed.Add(1)
		k.fault.Store(&err)
		k.cfg.Log.Error("the new backends file can't be used: the old one stays", "error", err)
	default:
		k.fault.Store(nil)
		k.taken.Add(1)
		k.cfg.Log.Info("the backends file was read again", "backends", s.Len())
	}
	if again || err != nil {
		s = nil
	}
	k.settle(s)
}

// settle makes a set the current one, if there is a new one, and ends the calls that lose by that
// or have no more time.
func (k *Keeper) settle(s *Set) {
	now := k.now()
	over := map[*Caller]error{}
	k.mu.Lock()
	if s != nil {
		k.current.Store(s)
	}
	for c := range k.held {
		var err error
		if s != nil {
			err = k.again(c, now)
		} else if !c.until.IsZero() && !now.Before(c.until) {
			_, _, err = k.current.Load().Find(&c.proof, now)
		}
		if err != nil {
			over[c] = err
			delete(k.held, c)
		}
	}
	k.mu.Unlock()
	k.ended.Add(uint64(len(over)))
	for c, err := range over {
		c.end(err)
	}
}

// again finds who a caller is in a new set. k.mu is held.
func (k *Keeper) again(c *Caller, now time.Time) error {
	was := c.who.Load()
	who, until, err := k.current.Load().Find(&c.proof, now)
	switch {
	case err != nil:
		return err
	case who.Name != was.Name:
		return unauthenticated("the %s is backend %s's no longer: call again", c.proof.Kind(), was.Name)
	case !who.keeps(was):
		return code.New(wirev1.Code_CODE_FORBIDDEN, fmt.Sprintf("backend %s has lost a role: its roles are %s now; call again to go on with these", was.Name, who.roles()))
	}
	c.until = until
	c.who.Store(who)
	return nil
}

// Find is Set.Find in what the file says now.
func (k *Keeper) Find(p *Proof) (*Identity, error) {
	who, _, err := k.current.Load().Find(p, k.now())
	return who, err
}

// Limits are those of a producer (Identity.Producer) that is an identity with limits of its own.
func (k *Keeper) Limits(producer string) (l Limits) {
	if name, is := strings.CutPrefix(producer, producers); is {
		if who := k.current.Load().names[name]; who != nil {
			l = who.Limits
		}
	}
	return l
}

// Hold is Find for a call that may last. end is called once, by another goroutine, when the caller
// is not to go on; it must not block. release says that the call has ended.
func (k *Keeper) Hold(p *Proof, end func(error)) (c *Caller, release func(), err error) {
	c = &Caller{proof: *p, end: end}
	k.mu.Lock()
	defer k.mu.Unlock()
	who, until, err := k.current.Load().Find(p, k.now())
	if err != nil {
		return nil, nil, err
	}
	c.until = until
	c.who.Store(who)
	k.held[c] = struct{}{}
	return c, func() {
		k.mu.Lock()
		delete(k.held, c)
		k.mu.Unlock()
	}, nil
}

// Check reports a file that can't be used.
func (k *Keeper) Check() error {
	if err := k.fault.Load(); err != nil {
		return fmt.Errorf("the new backends file can't be used, the old one stays: %w", *err)
	}
	return nil
}

// Stats of a Keeper.
type Stats struct {
	Backends, Keys, Ending int // keys that end within the time that was asked for
	Held                   int // calls that may last
	Taken, Failed          uint64
	Ended                  uint64 // calls that the file or their time has ended
}

// Stats counts; soon is how far ahead keys count as ending.
func (k *Keeper) Stats(soon time.Duration) Stats {
	s := k.current.Load()
	now := k.now()
	st := Stats{Backends: s.Len(), Keys: len(s.keys), Ending: s.Ending(now, now.Add(soon)), Taken: k.taken.Load(), Failed: k.failed.Load(), Ended: k.ended.Load()}
	k.mu.Lock()
	st.Held = len(k.held)
	k.mu.Unlock()
	return st
}

type callerKey struct{}

// With is a context of a call of c.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Of is who calls; nil where callers need not prove who they are.
func Of(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Package attack is what hostile clients, producers, backends, neighbours and databases do to a
// mesh. Each attack is a function that goes on until its context ends, and counts what it was
// answered; it needs nothing from the mesh but addresses.
package attack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/load/suite"
)

// Attack is one of them.
type Attack struct {
	Name string
	// What it does, for people.
	What string
	// Metric in which an operator sees it, its labels summed.
	Metric string
	// Before, if any, prepares the mesh: that is no part of the attack.
	Before func(ctx context.Context, t *Target) error
	// Run attacks until ctx ends. Its error is one of the attack itself; what the mesh refuses is
	// counted.
	Run func(ctx context.Context, t *Target, c *Codes) error
	// Unless says why it can't be done to a target; "": it can. nil: it always can.
	Unless func(t *Target) string
	// Alone: it leaves nothing that others could attack meanwhile.
	Alone bool
}

// Target is the mesh that is attacked.
type Target struct {
	Edge, Router, NATS string
	// Postgres is a superuser's URL, Database the store's; "": there is none.
	Postgres, Database string
	// Disk and Log are folders of small file systems that hold the store's tables, and the log of
	// Postgres; "": there is none.
	Disk, Log string
	// TLS reports whether the edge takes TLS.
	TLS bool
	// Topics is how many topics "many/…" there are.
	Topics int
	// Percent of the full size of attacks.
	Percent int
}

// of is a size of an attack at this target.
func (t *Target) of(full int) int { return max(2, full*t.Percent/100) }

// Manys is the namespace of topics that attackers read, Clients that of what they publish over
// edges, Claimed that of what they claim.
const (
	Manys   = "many"
	Clients = "clients"
	Claimed = "claimed"
)

// Namespaces are what attacks need to be able to begin.
func Namespaces() []*pushmeshv1.Namespace {
	return []*pushmeshv1.Namespace{
		{Prefix: Manys, Policy: &pushmeshv1.Policy{Durable: true, ProducerRate: 1_000_000, ProducerInFlight: 100_000}},
		{Prefix: Clients, Policy: &pushmeshv1.Policy{ClientPublish: true}},
		{Prefix: Claimed, Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Clients: true}}},
	}
}

// All attacks, the most valuable first.
func All() []Attack {
	return slices.Concat(subscriptions(), windows(), frames(), records(), connections(), pages(), sessions(), producers(), backends(), neighbours(), databases())
}

// Codes counts what an attacker got. It is safe for concurrent use: connections may count on while
// an attack has ended.
type Codes struct {
	mu  sync.Mutex
	got Counts
}

// Counts are codes of the closed list by name, and everything else in Notes.
type Counts struct{ Codes, Notes map[string]int }

// Code counts one.
func (c *Codes) Code(of wirev1.Code) {
	if _, is := wirev1.Code_name[int32(of)]; !is {
		c.Note(fmt.Sprintf("no such code: %d", of))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got.Codes == nil {
		c.got.Codes = map[string]int{}
	}
	c.got.Codes[code.Name(of)]++
}

// Note counts what is no code.
func (c *Codes) Note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got.Notes == nil {
		c.got.Notes = map[string]int{}
	}
	c.got.Notes[what]++
}

// Error counts the code of a call that failed, or that it succeeded.
func (c *Codes) Error(err error) { c.Code(code.Of(err)) }

// Counts are those so far.
func (c *Codes) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counts{Codes: maps.Clone(c.got.Codes), Notes: maps.Clone(c.got.Notes)}
}

// String is the counts, the most frequent first.
func (c Counts) String() string {
	all := map[string]int{}
	maps.Copy(all, c.Codes)
	maps.Copy(all, c.Notes)
	var said []string
	for _, name := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(all[b]-all[a], cmp.Compare(a, b)) }) {
		said = append(said, fmt.Sprintf("%s %d", name, all[name]))
	}
	return strings.Join(said, ", ")
}

// router dials the router's API, from an address that no honest producer has.
func (t *Target) router(more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return suite.Dial(t.Router, append(more, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return dialer().DialContext(ctx, "tcp", addr)
	}))...)
}

func as(ctx context.Context, caller string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+caller)
}

// many runs do n times at once, again and again until ctx ends; an error ends a turn and is a note,
// after which the next one waits a moment.
func many(ctx context.Context, n int, c *Codes, do func(ctx context.Context, i int) error) error {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, i); err != nil && ctx.Err() == nil {
					c.Note(note(err))
					pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// note is an error without what differs between two of its kind.
func note(err error) string {
	text := err.Error()
	for _, kind := range []string{"reset by peer", "broken pipe", "EOF", "i/o timeout", "refused", "cannot assign requested address", "too many open files", "closed network"} {
		if strings.Contains(text, kind) {
			return kind
		}
	}
	return text[:min(len(text), 60)]
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

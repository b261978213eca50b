package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// holding has edges hold so many sessions, which are let go in slices.
func holding(held map[string]int) func(context.Context, string, uint64, int) (int, error) {
	return func(ctx context.Context, edge string, _ uint64, limit int) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := min(held[edge], limit)
		held[edge] -= n
		return n, nil
	}
}

// An edge with many sessions is let go in slices, and those with few between them.
func TestEdgesAreLetGoInSlices(t *testing.T) {
	held := map[string]int{"large": 3*detachLimit + 7, "small": 3, "exact": detachLimit}
	f, r := &fake{detach: holding(held)}, prometheus.NewRegistry()
	k := New(Config{Backend: f, Now: time.Now, Log: slog.New(slog.DiscardHandler), Registry: r})
	if err := k.LetGoOf(t.Context(), []string{"large", "small", "exact"}); err != nil {
		t.Fatal(err)
	}
	if held["large"]+held["small"]+held["exact"] != 0 {
		t.Errorf("still held: %v", held)
	}
	if want := []string{"large", "small", "exact", "large", "exact", "large", "large"}; !slices.Equal(f.let, want) {
		t.Errorf("slices of %v, want %v", f.let, want)
	}
	if got := counted(t, r, "pushmesh_store_sessions_detached_total"); got != 4*detachLimit+10 {
		t.Errorf("%v were counted", got)
	}
}

// What attaches while an edge is let go is held since, and keeps the edge: else one that lives
// after all could have its sessions let go for as long as it attaches others.
func TestLetGoIsWhatWasHeldWhenItBegan(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var times []uint64
	f := &fake{}
	f.detach = func(_ context.Context, _ string, at uint64, limit int) (int, error) {
		times = append(times, at)
		now = now.Add(time.Second)
		if len(times) == 3 {
			return 0, nil
		}
		return limit, nil
	}
	if err := keeper(f, func() time.Time { return now }).LetGoOf(t.Context(), []string{"e"}); err != nil {
		t.Fatal(err)
	}
	if begun := uint64(time.Unix(1_000_000, 0).UnixMicro()); !slices.Equal(times, []uint64{begun, begun, begun}) {
		t.Errorf("let go is what was held before %d, want %d", times, begun)
	}
}

// A turn ends with its time, and the next one goes on with what is left.
func TestALongLetGoGoesOnAtTheNextTurn(t *testing.T) {
	held := map[string]int{"a": 2*detachLimit + 1, "b": 2*detachLimit + 1}
	f := &fake{}
	k := keeper(f, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	f.detach = func(ctx context.Context, edge string, now uint64, limit int) (int, error) {
		if len(f.let) == 4 { // the second slice of b: the database is at it when the time is over
			cancel()
			return 0, ctx.Err()
		}
		return holding(held)(ctx, edge, now, limit)
	}
	if err := k.LetGoOf(ctx, []string{"a", "b"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a turn without time ended with %v", err)
	}
	if held["a"] != 1 || held["b"] != detachLimit+1 || len(f.let) != 4 {
		t.Errorf("after a turn: %v, slices of %v", held, f.let)
	}
	if err := k.LetGoOf(t.Context(), []string{"a", "b"}); err != nil || held["a"]+held["b"] != 0 {
		t.Errorf("after the next: %v, %v", held, err)
	}
}

// An edge of which a slice fails holds up no other; it has its next chance in the next turn, with
// smaller slices, which are large again once they succeed.
func TestAnEdgeThatFailsHoldsUpNoOther(t *testing.T) {
	held := map[string]int{"bad": detachLimit, "good": 2*detachLimit + 1}
	away := errors.New("canceling statement due to statement timeout")
	most := detachLimit / 8 // what the database manages in time
	var limits []int
	f := &fake{}
	f.detach = func(ctx context.Context, edge string, now uint64, limit int) (int, error) {
		if edge == "bad" {
			if limits = append(limits, limit); limit > most {
				return 0, away
			}
		}
		return holding(held)(ctx, edge, now, limit)
	}
	k := keeper(f, time.Now)
	if err := k.LetGoOf(t.Context(), []string{"bad", "good"}); !errors.Is(err, away) || !strings.Contains(err.Error(), "edge bad") {
		t.Errorf("a slice that failed is told as %v", err)
	}
	if held["good"] != 0 || held["bad"] != detachLimit {
		t.Errorf("beside an edge that fails: %v", held)
	}
	for range 3 {
		_ = k.LetGoOf(t.Context(), []string{"bad"})
	}
	if want := []int{detachLimit, detachLimit / 2, detachLimit / 4, detachLimit / 8}; len(limits) < 4 || !slices.Equal(limits[:4], want) {
		t.Errorf("slices of %v, want them to begin with %v", limits, want)
	}
	if held["bad"] != 0 {
		t.Errorf("%d are still held, with slices of %v", held["bad"], limits)
	}
	most = 0
	for range 20 {
		held["bad"] = 1
		_ = k.LetGoOf(t.Context(), []string{"bad"})
	}
	if k.slice != detachLeast {
		t.Errorf("slices of %d where all fail, want %d", k.slice, detachLeast)
	}
	most = detachLimit
	for range 20 {
		if err := k.LetGoOf(t.Context(), []string{"bad"}); err != nil {
			t.Fatal(err)
		}
	}
	if k.slice != detachLimit {
		t.Errorf("slices of %d where all succeed, want %d", k.slice, detachLimit)
	}
}

// An edge that is heard of while its sessions are let go keeps those that are left.
func TestAnEdgeThatIsHeardAgainKeepsTheRest(t *testing.T) {
	now := time.Unix(1000, 0)
	held := map[string]int{"e": 3 * detachLimit}
	f := &fake{}
	k := keeper(f, time.Now)
	k.cfg.Steady = func() time.Time { return now }
	k.gap()
	now = now.Add(edgeSilence)
	f.detach = func(ctx context.Context, edge string, at uint64, limit int) (int, error) {
		data, err := proto.Marshal(&meshv1.EdgeDigest{EdgeId: edge})
		if err != nil {
			return 0, err
		}
		k.observe(data)
		return holding(held)(ctx, edge, at, limit)
	}
	if err := k.LetGoOf(t.Context(), []string{"e"}); err != nil || held["e"] != 2*detachLimit {
		t.Errorf("%d are held of %d, %v", held["e"], 3*detachLimit, err)
	}
}

// An edge that is heard of while those of another one are let go keeps all of its own.
func TestAnEdgeThatIsHeardInTimeKeepsAll(t *testing.T) {
	now := time.Unix(1000, 0)
	held := map[string]int{"gone": 1, "back": 1}
	f := &fake{}
	k := keeper(f, time.Now)
	k.cfg.Steady = func() time.Time { return now }
	k.gap()
	now = now.Add(edgeSilence)
	f.detach = func(ctx context.Context, edge string, at uint64, limit int) (int, error) {
		data, err := proto.Marshal(&meshv1.EdgeDigest{EdgeId: "back"})
		if err != nil {
			return 0, err
		}
		k.observe(data) // the database takes long
		return holding(held)(ctx, edge, at, limit)
	}
	if err := k.LetGoOf(t.Context(), []string{"gone", "back"}); err != nil || held["gone"] != 0 || held["back"] != 1 {
		t.Errorf("held: %v, %v", held, err)
	}
}

// Sessions expire while the database is at those of an edge that is gone, and when that fails.
func TestSessionsExpireWhateverEdgesDo(t *testing.T) {
	nats, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	nats.Start()
	defer nats.Shutdown()
	if !nats.ReadyForConnections(time.Minute) {
		t.Fatal("NATS does not start")
	}
	b := bus.New(bus.Config{URL: nats.ClientURL(), Name: "store", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler)})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	began, end := make(chan struct{}), make(chan struct{})
	f := &fake{over: expireLimit + 1, edges: []string{"e"}}
	f.detach = func(context.Context, string, uint64, int) (int, error) {
		close(began)
		<-end
		return 0, errors.New("the database does not answer")
	}
	steady := time.Unix(1000, 0)
	k := keeper(f, time.Now)
	k.cfg.Bus, k.cfg.Steady = b, func() time.Time { return steady }
	k.gap()
	steady = steady.Add(edgeSilence)
	failed := make(chan error, 1)
	go func() { failed <- k.Edges(t.Context()) }()
	<-began
	if err := k.Sessions(t.Context()); err != nil || f.over != 0 {
		t.Errorf("%d sessions are left, %v", f.over, err)
	}
	close(end)
	if err := <-failed; err == nil {
		t.Error("a slice that failed is not told")
	}
	f.over = 1
	if err := k.Sessions(t.Context()); err != nil || f.over != 0 {
		t.Errorf("%d sessions are left after a slice that failed, %v", f.over, err)
	}
}

package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// fake database: sessions over, edges that hold some, calls made.
type fake struct {
	over  int
	edges []string
	// of whom sessions were asked to be let go, slice by slice
	let []string
	// nil: each edge holds one
	detach  func(ctx context.Context, edge string, now uint64, limit int) (int, error)
	made    int
	dropped int
	folds   []backend.Fold
	revoked int
	err     error
}

func (f *fake) MakeSlices(context.Context, uint64) error { f.made++; return f.err }

func (f *fake) DropSlices(context.Context, uint64) (int, error) { f.dropped++; return 1, nil }

func (f *fake) FoldCursors(_ context.Context, how backend.Fold) error {
	f.folds = append(f.folds, how)
	return f.err
}

func (f *fake) FoldCheckpoints(_ context.Context, how backend.Fold) error {
	f.folds = append(f.folds, how)
	return f.err
}

func (f *fake) ExpireSessions(_ context.Context, _ uint64, limit int) ([]backend.SessionKey, error) {
	if f.err != nil {
		return nil, f.err
	}
	n := min(f.over, limit)
	var all []backend.SessionKey
	for i := range n {
		all = append(all, backend.SessionKey{User: "u", Name: fmt.Sprint(f.over - i)})
	}
	f.over -= n
	return all, nil
}

func (f *fake) SessionEdges(context.Context) ([]string, error) { return f.edges, f.err }

func (f *fake) DetachEdge(ctx context.Context, edge string, now uint64, limit int) (int, error) {
	f.let = append(f.let, edge)
	if f.detach != nil {
		return f.detach(ctx, edge, now, limit)
	}
	return 1, nil
}

func (f *fake) ExpireRevocations(_ context.Context, _ uint64, limit int) (int, error) {
	n := min(f.revoked, limit)
	f.revoked -= n
	return n, f.err
}

func keeper(f *fake, now func() time.Time) *Keeper {
	return New(Config{Backend: f, Mine: func() bool { return true }, Now: now, Log: slog.New(slog.DiscardHandler)})
}

// Revocations go once they are over, as far as the clock can tell that.
func TestRevocationsExpireInPieces(t *testing.T) {
	f := &fake{revoked: 2*expireLimit + 1}
	k := keeper(f, time.Now)
	if err := k.Revocations(t.Context()); err != nil || f.revoked != 0 {
		t.Errorf("%d are left: %v", f.revoked, err)
	}
	f.revoked, k.cfg.Ages = 1, func() error { return errors.New("which time it is nobody knows") }
	if err := k.Revocations(t.Context()); err == nil || f.revoked != 1 {
		t.Errorf("%d are left where the clock can't be trusted: %v", f.revoked, err)
	}
}

func TestSessionsExpireInPieces(t *testing.T) {
	const over = 3*expireLimit + 7
	f, r := &fake{over: over}, prometheus.NewRegistry()
	told := map[backend.SessionKey]int{}
	k := New(Config{
		Backend: f, Mine: func() bool { return true }, Now: time.Now, Log: slog.New(slog.DiscardHandler), Registry: r,
		Expired: func(s backend.SessionKey) { told[s]++ },
	})
	if err := k.Sessions(t.Context()); err != nil || f.over != 0 || len(told) != over {
		t.Errorf("%d are left, %d told of, %v", f.over, len(told), err)
	}
	if got := expired(t, r); got != over {
		t.Errorf("%v were counted, want %d", got, over)
	}
	if f.let != nil {
		t.Errorf("without NATS no edge is gone: %v", f.let)
	}
	f.over, f.err = 1, errors.New("away")
	if err := k.Sessions(t.Context()); !errors.Is(err, f.err) {
		t.Errorf("%v", err)
	}
	if got := expired(t, r); got != over {
		t.Errorf("%v were counted after an error, want %d", got, over)
	}
}

// expired is how many sessions were counted as such.
func expired(t *testing.T, r *prometheus.Registry) float64 {
	t.Helper()
	return counted(t, r, "pushmesh_store_sessions_expired_total")
}

// counted is a counter's value.
func counted(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("the counter is missing")
	return 0
}

func TestSlices(t *testing.T) {
	f := &fake{}
	if err := keeper(f, time.Now).Slices(t.Context()); err != nil || f.made != 1 || f.dropped != 1 {
		t.Errorf("made %d, dropped %d, %v", f.made, f.dropped, err)
	}
	f.err = errors.New("away")
	if err := keeper(f, time.Now).Slices(t.Context()); err == nil || f.dropped != 1 {
		t.Errorf("dropped %d after %v", f.dropped, err)
	}
}

// An edge is gone when it was silent for a minute in which it would have been heard.
func TestSilentEdges(t *testing.T) {
	now := time.Unix(1000, 0)
	k := keeper(&fake{}, time.Now)
	k.cfg.Steady = func() time.Time { return now }
	k.gap()
	digest := func(edge string) {
		data, err := proto.Marshal(&meshv1.EdgeDigest{EdgeId: edge})
		if err != nil {
			t.Fatal(err)
		}
		k.observe(data)
	}
	holders := []string{"live", "gone", "never"}
	digest("gone")
	now = now.Add(30 * time.Second)
	digest("live")
	if got := k.silent(holders); got != nil {
		t.Errorf("after 30 s: %v", got)
	}
	now = now.Add(31 * time.Second)
	if got := k.silent(holders); !slices.Equal(got, []string{"gone", "never"}) {
		t.Errorf("after a minute: %v", got)
	}
	k.gap() // NATS was away: who knows what was missed
	if got := k.silent(holders); got != nil {
		t.Errorf("after a gap: %v", got)
	}
	now = now.Add(time.Hour)
	k.silent(nil)
	if len(k.edges) != 0 {
		t.Errorf("edges that are long gone are remembered: %v", k.edges)
	}
}

// Whether an edge is silent is not told by the database's clock: one that was heard just now keeps
// its sessions when that clock is set ahead, and one that is gone is let go also after it was set
// back.
func TestAStepOfTheClockMakesNoEdgeSilent(t *testing.T) {
	database, steady := time.Unix(1_000_000, 0), time.Unix(1000, 0)
	k := keeper(&fake{}, func() time.Time { return database })
	k.cfg.Steady = func() time.Time { return steady }
	k.gap()
	pass := func(d time.Duration) { database, steady = database.Add(d), steady.Add(d) }
	hear := func() {
		data, err := proto.Marshal(&meshv1.EdgeDigest{EdgeId: "e"})
		if err != nil {
			t.Fatal(err)
		}
		k.observe(data)
	}
	pass(2 * edgeSilence)
	hear()
	database = database.Add(time.Hour)
	if gone := k.silent([]string{"e"}); gone != nil {
		t.Errorf("the clock was set ahead: %v, heard just now, is let go", gone)
	}
	hear()
	database = database.Add(-2 * time.Hour)
	pass(edgeSilence)
	if gone := k.silent([]string{"e"}); !slices.Equal(gone, []string{"e"}) {
		t.Errorf("the clock was set back: %v are let go after a minute of silence, want e", gone)
	}
}

func TestNothingRunsWhereAnotherKeepsOrder(t *testing.T) {
	f := &fake{}
	k := keeper(f, time.Now)
	asked := make(chan struct{}, 100)
	k.cfg.Mine = func() bool { asked <- struct{}{}; return false }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		k.every(ctx, time.Millisecond, time.Second, k.Slices)
		close(ended)
	}()
	for range 5 {
		<-asked
	}
	cancel()
	<-ended
	if f.made != 0 {
		t.Errorf("%d times", f.made)
	}
}

func TestStartMakesSlices(t *testing.T) {
	f := &fake{}
	k := keeper(f, time.Now)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.made != 1 {
		t.Errorf("made %d times", f.made)
	}
}

func TestWhatIsDueIsFolded(t *testing.T) {
	f := &fake{}
	k := keeper(f, time.Now)
	if err := errors.Join(k.Cursors(t.Context()), k.Checkpoints(t.Context())); err != nil || !slices.Equal(f.folds, []backend.Fold{backend.FoldDue, backend.FoldDue}) {
		t.Errorf("folds %v, %v", f.folds, err)
	}
}

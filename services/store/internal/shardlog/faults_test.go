package shardlog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/backend/backendtest"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
	"github.com/pushmesh/pushmesh/services/store/internal/sqlite"
)

var me = backend.Owner{StoreID: "a", Incarnation: 7, Address: "a:1"}

func need(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) *sqlite.Backend {
	t.Helper()
	b, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "store.db"))
	need(t, err)
	t.Cleanup(func() { need(t, b.Close()) })
	return b
}

// faulty is a backend whose writers do what a test says.
type faulty struct {
	backend.Backend
	mu     sync.Mutex
	away   error                                          // what writers say; nil: nothing
	commit func(w backend.Writer, b *backend.Batch) error // stands for one commit; nil: as usual
	claim  func() error                                   // asked before each claim
	keys   func() error                                   // asked before a question for keys
	// what reading the log answers; nil: as usual
	read error
	// stands between a load and who loads; nil: nothing
	load func(backend.Loader) backend.Loader
}

func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faulty) OpenWriter(ctx context.Context, o backend.Owner) (backend.Writer, error) {
	f.mu.Lock()
	away := f.away
	f.mu.Unlock()
	if away != nil {
		return nil, away
	}
	w, err := f.Backend.OpenWriter(ctx, o)
	return &faultyWriter{w, f}, err
}

type faultyWriter struct {
	backend.Writer
	f *faulty
}

func (w *faultyWriter) Keys(ctx context.Context, hashes []backend.KeyHash, now uint64) ([]backend.Key, error) {
	w.f.mu.Lock()
	ask := w.f.keys
	w.f.mu.Unlock()
	if ask != nil {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	return w.Writer.Keys(ctx, hashes, now)
}

func (w *faultyWriter) Load(ctx context.Context, shards []int, into backend.Loader) error {
	w.f.mu.Lock()
	load := w.f.load
	w.f.mu.Unlock()
	if load != nil {
		into = load(into)
	}
	return w.Writer.Load(ctx, shards, into)
}

func (w *faultyWriter) ReadRuns(ctx context.Context, topic string, epoch, from, to uint64, visit func(backend.Run) bool) error {
	w.f.mu.Lock()
	err := w.f.read
	w.f.mu.Unlock()
	if err != nil {
		return err
	}
	return w.Writer.ReadRuns(ctx, topic, epoch, from, to, visit)
}

func (w *faultyWriter) Commit(ctx context.Context, b *backend.Batch) error {
	w.f.mu.Lock()
	commit := w.f.commit
	w.f.commit = nil
	w.f.mu.Unlock()
	if commit == nil {
		return w.Writer.Commit(ctx, b)
	}
	return commit(w.Writer, b)
}

func (w *faultyWriter) TakeShards(ctx context.Context, shards []int) ([]int, error) {
	w.f.mu.Lock()
	away, claim := w.f.away, w.f.claim
	w.f.mu.Unlock()
	if claim != nil {
		away = claim()
	}
	if away != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrLost, away)
	}
	return w.Writer.TakeShards(ctx, shards)
}

func start(t *testing.T, changes ...func(*shardlog.Config)) (*backendtest.Log, *faulty) {
	t.Helper()
	f := &faulty{Backend: open(t)}
	l := backendtest.OpenLog(t, f, me, 1, backendtest.NewClock().Now, changes...)
	l.WaitReady(t)
	return l, f
}

var errCut = errors.New("the connection was cut by the test")

// A commit whose answer was lost is looked up: its messages get the result that is true, once.
func TestUnknownOutcomeIsResolved(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			l, f := start(t)
			if r := l.Append(t, backendtest.Item("room/1", "first"))[0]; r.GetSeq() != 1 {
				t.Fatalf("%v", r)
			}
			f.set(func(f *faulty) {
				f.commit = func(w backend.Writer, b *backend.Batch) error {
					if committed {
						need(t, w.Commit(context.Background(), b))
					}
					return fmt.Errorf("%w: %w", backend.ErrUnknown, errCut)
				}
			})
			r := l.Append(t, backendtest.Item("room/1", "second"))[0]
			want := []string{"first", "third"}
			if committed {
				want = []string{"first", "second", "third"}
				if r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
					t.Errorf("it was committed: %v", r)
				}
			} else if r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
				t.Errorf("it was not committed: %v", r)
			}
			if r := l.Append(t, backendtest.Item("room/1", "third"))[0]; r.GetSeq() != uint64(len(want)) {
				t.Errorf("the next one: %v", r)
			}
			if diff := cmp.Diff(want, l.Bodies(t, "room/1")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Another store has the shard meanwhile: nobody here knows the outcome, and that is what is said.
func TestUnknownOutcomeAfterTakeover(t *testing.T) {
	l, f := start(t)
	other, err := f.OpenWriter(context.Background(), backend.Owner{StoreID: "b", Incarnation: 1})
	need(t, err)
	f.set(func(f *faulty) {
		f.commit = func(w backend.Writer, b *backend.Batch) error {
			need(t, w.Close())
			got, err := other.TakeShards(context.Background(), backendtest.AllShards())
			need(t, err)
			if len(got) != len(backendtest.AllShards()) {
				t.Errorf("took %d shards", len(got))
			}
			return fmt.Errorf("%w: %w", backend.ErrUnknown, errCut)
		}
	})
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetCode() != wirev1.Code_CODE_INTERNAL {
		t.Errorf("%v, want INTERNAL: the router tells edges to look", r)
	}
	need(t, other.Close())
	l.WaitReady(t)
	if r := l.Append(t, backendtest.Item("room/1", "y"))[0]; r.GetSeq() != 1 {
		t.Errorf("after the other store has gone: %v", r)
	}
}

// With the database away appends are refused at once; it heals by itself.
func TestDatabaseAway(t *testing.T) {
	l, f := start(t)
	f.set(func(f *faulty) {
		f.commit = func(backend.Writer, *backend.Batch) error {
			f.set(func(f *faulty) { f.away = errCut })
			return fmt.Errorf("%w: %w", backend.ErrLost, errCut)
		}
	})
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("a writer that was lost: %v", r)
	}
	best := time.Hour
	for deadline := time.Now().Add(backendtest.Patience / 4); best > 10*time.Millisecond && time.Now().Before(deadline); {
		// the machine may be busy
		begun := time.Now()
		r := l.Append(t, backendtest.Item("room/1", "x"))[0]
		best = min(best, time.Since(begun))
		if r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
			t.Fatalf("while it is away: %v", r)
		}
	}
	if best > 10*time.Millisecond {
		t.Errorf("refused only after %s", best)
	}
	if err := l.Check(); err == nil {
		t.Error("the health check sees nothing")
	}
	if _, err := l.Log.Heads(context.Background(), []string{"room/1"}, nil, 0); err == nil {
		t.Error("heads are answered by a store that owns nothing")
	}
	if heads, shards, err := l.Survey(context.Background(), nil, []string{"room/#"}, 0); err == nil && slices.ContainsFunc(backendtest.AllShards(), shards.Has) {
		t.Errorf("%v: a store that has loaded nothing says that it has compared a filter with all topics", heads)
	}
	f.set(func(f *faulty) { f.away = nil })
	l.WaitReady(t)
	if r := l.Append(t, backendtest.Item("room/1", "x"))[0]; r.GetSeq() != 1 {
		t.Errorf("healed: %v", r)
	}
}

// Nobody knows whether a key was used: refused, so that nothing is published twice.
func TestKeysCanNotBeAsked(t *testing.T) {
	l, f := start(t)
	f.set(func(f *faulty) { f.keys = func() error { return errCut } })
	item := backendtest.Item("room/1", "x")
	item.DedupeKey = "k"
	if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE {
		t.Errorf("%v", r)
	}
	f.set(func(f *faulty) { f.keys = nil })
	if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetDuplicate() {
		t.Errorf("%v", r)
	}
	// Keys are asked on the connection that appends: where that is lost, another one is made.
	f.set(func(f *faulty) { f.keys = func() error { return fmt.Errorf("%w: %w", backend.ErrLost, errCut) } })
	item = backendtest.Item("room/1", "x")
	item.DedupeKey = "another"
	if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
		t.Errorf("%v", r)
	}
	f.set(func(f *faulty) { f.keys = nil })
	l.WaitReady(t)
	if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_OK || r.GetSeq() != 2 {
		t.Errorf("%v", r)
	}
}

// A repeated number whose first result can't be read is refused: an OK without a seq would tell the
// producer that its topic is ephemeral, and that it need not keep numbers.
func TestFirstResultsCanNotBeRead(t *testing.T) {
	l, f := start(t)
	item := backendtest.Item("room/1", "x")
	item.ProducerId, item.ProducerSeq = make([]byte, 16), 1
	first := l.Append(t, item)[0]
	f.set(func(f *faulty) { f.read = errCut })
	if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_UNAVAILABLE || r.GetRetryAfterMs() == 0 {
		t.Errorf("%v", r)
	}
	f.set(func(f *faulty) { f.read = nil })
	if r := l.Append(t, item)[0]; !r.GetDuplicate() || r.GetSeq() != first.GetSeq() || first.GetSeq() != 1 {
		t.Errorf("first %v, then %v", first, r)
	}
}

// Memory decides about keys once the window since the claim is over; the database is not asked any
// more.
func TestKeysAreDecidedByMemory(t *testing.T) {
	asked := 0
	f := &faulty{Backend: open(t)}
	f.keys = func() error { asked++; return nil }
	clock := backendtest.NewClock()
	l := backendtest.OpenLog(t, f, me, 1, clock.Now)
	l.WaitReady(t)
	put := func(key string) *meshv1.AppendResult {
		item := backendtest.Item("room/1", "x")
		item.DedupeKey = key
		return l.Append(t, item)[0]
	}
	put("a")
	if asked != 1 {
		t.Fatalf("asked %d times right after the claim, want once", asked)
	}
	clock.Add(2*time.Minute + time.Second)
	put("b")
	if r := put("b"); !r.GetDuplicate() {
		t.Errorf("%v", r)
	}
	if asked != 1 {
		t.Errorf("asked %d times, memory knows all of the window", asked)
	}
}

// What waits is bounded; beyond it the refusal says when to come back. An ordered producer resends
// from there.
func TestOverload(t *testing.T) {
	gate := backendtest.NewGate(open(t))
	l := backendtest.OpenLog(t, gate, me, 1, backendtest.NewClock().Now)
	l.WaitReady(t)
	const n = 40_000
	s := backendtest.NewSink()
	items := make([]*meshv1.AppendItem, n)
	for i := range items {
		items[i] = backendtest.Item("room/1", "x")
		items[i].Ref = uint64(i) + 1
		items[i].ProducerId, items[i].ProducerSeq = make([]byte, 16), uint64(i)+1
		items[i].ProducerId[0] = 1
	}
	l.Log.Append(items[:1], s)
	<-gate.Entered
	l.Log.Append(items[1:], s)
	last := s.Wait(t, n)
	if last.GetCode() != wirev1.Code_CODE_OVERLOADED || last.GetRetryAfterMs() == 0 {
		t.Fatalf("the last: %v", last)
	}
	go func() {
		for {
			select {
			case gate.Leave <- nil:
			case <-gate.Entered:
			case <-t.Context().Done():
				return
			}
		}
	}()
	accepted := uint64(0)
	for ref := uint64(1); ref <= n; ref++ {
		switch r := s.Wait(t, ref); r.GetCode() {
		case wirev1.Code_CODE_OK:
			if r.GetSeq() != ref || accepted != ref-1 {
				t.Fatalf("%d: %v after %d accepted", ref, r, accepted)
			}
			accepted = ref
		case wirev1.Code_CODE_OVERLOADED:
		default:
			t.Fatalf("%d: %v", ref, r)
		}
	}
	if accepted < 10_000 || accepted == n {
		t.Errorf("%d of %d accepted", accepted, n)
	}
	again := backendtest.NewSink()
	l.Log.Append(items[accepted:accepted+1], again)
	if r := again.Wait(t, accepted+1); r.GetSeq() != accepted+1 {
		t.Errorf("resent: %v", r)
	}
}

// flood appends without end until told to stop, keeping thousands unanswered.
func flood(t *testing.T, l *backendtest.Log) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ref := uint64(1); ctx.Err() == nil; ref++ {
			items := make([]*meshv1.AppendItem, 100)
			for i := range items {
				items[i] = backendtest.Item(fmt.Sprintf("room/%d", i), "x")
			}
			l.Log.Append(items, &discard{})
		}
	}()
	return func() { cancel(); <-ended }
}

type discard struct{ _ byte } // each has an address of its own

func (*discard) Results([]*meshv1.AppendResult) {}

// A lane that never rests still gives shards back when it should.
func TestSharesMoveUnderLoad(t *testing.T) {
	f := &faulty{Backend: open(t)}
	l := backendtest.OpenLog(t, f, me, 1, time.Now)
	l.WaitReady(t)
	stop := flood(t, l)
	defer stop()
	l.Want(backendtest.AllShards()[:100])
	deadline := time.After(backendtest.Patience)
	for { // the log gives a shard up before the database says so
		owners, err := f.Owners(context.Background())
		need(t, err)
		if len(l.Owned()) == 100 && len(owners) == 100 {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("owns %d shards, the database says %d", len(l.Owned()), len(owners))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Items that can never be appended are refused, whatever else is with them.
func TestNonsense(t *testing.T) {
	l, _ := start(t)
	bad := map[wirev1.Code]*meshv1.AppendItem{
		wirev1.Code_CODE_BAD_TOPIC:         backendtest.Item("room/+", "x"),
		wirev1.Code_CODE_INVALID_ARGUMENT:  {Topic: "room/1", MessageId: []byte("short")},
		wirev1.Code_CODE_PAYLOAD_TOO_LARGE: backendtest.Item("room/1", string(make([]byte, 5<<20))),
	}
	for want, item := range bad {
		if r := l.Append(t, item, backendtest.Item("room/1", "y")); r[0].GetCode() != want || r[1].GetCode() != wirev1.Code_CODE_OK {
			t.Errorf("%v, want %s", r, want)
		}
	}
	for name, change := range map[string]func(*meshv1.AppendItem){
		"producer_seq without id": func(i *meshv1.AppendItem) { i.ProducerSeq = 1 },
		"id without producer_seq": func(i *meshv1.AppendItem) { i.ProducerId = make([]byte, 16) },
		"long key":                func(i *meshv1.AppendItem) { i.DedupeKey = string(make([]byte, 2000)) },
		"long traceparent":        func(i *meshv1.AppendItem) { i.Traceparent = string(make([]byte, 200)) },
	} {
		item := backendtest.Item("room/1", "x")
		change(item)
		if r := l.Append(t, item)[0]; r.GetCode() != wirev1.Code_CODE_INVALID_ARGUMENT {
			t.Errorf("%s: %v", name, r)
		}
	}
}

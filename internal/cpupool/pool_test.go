package cpupool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// patience bounds every wait of these tests; nothing comes near it.
const patience = time.Minute

// task counts its slices down; each tells the test whose it was.
type task struct {
	left int
	each func()
}

func (t *task) Step(time.Duration) (bool, error) {
	if t.each != nil {
		t.each()
	}
	t.left--
	return t.left <= 0, nil
}

// gate is a task that tells when it runs and waits to be let go.
type gate struct{ entered, leave chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) Step(time.Duration) (bool, error) {
	close(g.entered)
	<-g.leave
	return true, nil
}

func start(t *testing.T, cfg Config) *Pool {
	t.Helper()
	if cfg.MaxCost == 0 {
		cfg.MaxCost = 1 << 30
	}
	if cfg.Queue == ([Lanes]int{}) {
		cfg.Queue = [Lanes]int{4096, 4096}
	}
	p := New(cfg)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// queue runs tasks in the background and waits until they are queued.
func queue(ctx context.Context, t *testing.T, p *Pool, caller string, cost, n int, each func()) (results chan error) {
	t.Helper()
	results = make(chan error, n)
	before := p.depth()
	for range n {
		go func() {
			_, err := p.Do(ctx, caller, cost, &task{left: 3, each: each})
			results <- err
		}()
	}
	until(t, func() bool { return p.depth() == before+n })
	return results
}

func (p *Pool) depth() int { return p.Depth(Short) + p.Depth(Long) }

func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Microsecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

func occupy(t *testing.T, p *Pool) *gate {
	t.Helper()
	g := newGate()
	go func() { _, _ = p.Do(context.Background(), "gate", 1, g) }()
	<-g.entered
	return g
}

func TestOneJobBesideAThousandWaitsTwoTurns(t *testing.T) {
	for _, lane := range []Lane{Short, Long} {
		p := start(t, Config{Workers: 1, ShortCost: 10})
		g := occupy(t, p)
		var mu sync.Mutex
		var turns []string
		note := func(who string) func() {
			return func() {
				mu.Lock()
				defer mu.Unlock()
				turns = append(turns, who)
			}
		}
		cost := 1
		if lane == Long {
			cost = 1000
		}
		many := queue(t.Context(), t, p, "many", cost, 1000, note("many"))
		one := queue(t.Context(), t, p, "one", cost, 1, note("one"))
		close(g.leave)
		if err := <-one; err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		since := 0
		ran := 0
		for _, who := range turns {
			if since++; since > 2 {
				t.Fatalf("%v: the one waited more than two turns: %v", lane, turns[:min(len(turns), 20)])
			}
			if who == "one" {
				since = 0
				if ran++; ran == 3 {
					break
				}
			}
		}
		mu.Unlock()
		if ran != 3 {
			t.Fatalf("%v: %d of 3 slices", lane, ran)
		}
		for range 1000 {
			if err := <-many; err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestShortJobsGoFirst(t *testing.T) {
	p := start(t, Config{Workers: 1, ShortCost: 10})
	g := occupy(t, p)
	var longs, before atomic.Int32
	long := queue(t.Context(), t, p, "a", 1000, 100, func() { longs.Add(1) })
	short := queue(t.Context(), t, p, "a", 1, 1, func() { before.Store(longs.Load()) })
	close(g.leave)
	if err := <-short; err != nil {
		t.Fatal(err)
	}
	if n := before.Load(); n > 1 {
		t.Fatalf("a short job's third slice came after %d slices of long ones", n)
	}
	for range 100 {
		if err := <-long; err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	p := start(t, Config{Workers: 1, Queue: [Lanes]int{4, 4}, ShortCost: 10, MaxCost: 1000})
	g := occupy(t, p)
	a := queue(t.Context(), t, p, "a", 1, 2, nil)
	refused := func(why, caller string, cost int) {
		t.Helper()
		took := patience
		for range 20 { // one of them is not held up by the machine
			began := time.Now()
			_, err := p.Do(t.Context(), caller, cost, &task{left: 1})
			var e *code.Error
			if !errors.As(err, &e) || e.Code != wirev1.Code_CODE_OVERLOADED || e.RetryAfter <= 0 {
				t.Fatalf("%s: %v", why, err)
			}
			took = min(took, time.Since(began))
		}
		if took > time.Second {
			t.Fatalf("%s: refused after %v", why, took)
		}
	}
	refused("a has its half", "a", 1)
	b := queue(t.Context(), t, p, "b", 1, 2, nil)
	refused("the lane is full", "c", 1)
	c := queue(t.Context(), t, p, "c", 100, 1, nil) // the other lane has room
	refused("too much work", "c", 901)
	close(g.leave)
	for _, r := range []chan error{a, a, b, b, c} {
		if err := <-r; err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return p.Cost() == 0 })
}

// Long jobs take none of the room of short ones.
func TestEachLaneHasItsOwnCost(t *testing.T) {
	p := start(t, Config{Workers: 1, ShortCost: 10, MaxCost: 1000, MaxJob: 900})
	g := occupy(t, p)
	if _, err := p.Do(t.Context(), "a", 901, &task{}); code.Of(err) != wirev1.Code_CODE_INVALID_ARGUMENT {
		t.Fatal(err)
	}
	long := queue(t.Context(), t, p, "a", 500, 2, nil)
	if _, err := p.Do(t.Context(), "b", 11, &task{}); code.Of(err) != wirev1.Code_CODE_OVERLOADED {
		t.Fatal(err)
	}
	short := queue(t.Context(), t, p, "b", 10, 3, nil)
	close(g.leave)
	for _, r := range []chan error{long, long, short, short, short} {
		if err := <-r; err != nil {
			t.Fatal(err)
		}
	}
}

// Of one caller's jobs in a lane the smaller goes first, between the slices of a larger one; those
// of a size go one after the other.
func TestSmallJobsOvertakeLargeOnesOfTheirCaller(t *testing.T) {
	p := start(t, Config{Workers: 1, ShortCost: 10})
	var mu sync.Mutex
	var turns []string
	note := func(who string) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			turns = append(turns, who)
		}
	}
	// A cost of 40,000,000 is a second: nothing that takes so long is due before what comes within
	// the ten that it is given.
	first := newGate()
	large := make(chan error, 2)
	for i, who := range []string{"l1 ", "l2 "} {
		work := Task(&task{left: 2, each: note(who)})
		if i == 0 {
			work = tasks{first, work}
		}
		if err := p.Go(t.Context(), "one", 40_000_000, work, func(_ Times, err error) { large <- err }); err != nil {
			t.Fatal(err)
		}
	}
	<-first.entered
	small := queue(t.Context(), t, p, "one", 1000, 2, note("s "))
	close(first.leave)
	for _, r := range []chan error{small, small, large, large} {
		if err := <-r; err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(turns, ""); got != "s s s s s s l1 l1 l2 l2 " {
		t.Fatal(got)
	}
}

// tasks are done one after the other.
type tasks []Task

func (t tasks) Step(slice time.Duration) (bool, error) {
	for i, one := range t {
		if one == nil {
			continue
		}
		done, err := one.Step(slice)
		if done {
			t[i] = nil
		}
		return done && i == len(t)-1, err
	}
	return true, nil
}

// What is large waits for small ones only in proportion to its work.
func TestDue(t *testing.T) {
	came := time.Unix(1000, 0)
	large := due(came, 40_000_000)
	if !due(came.Add(9*time.Second), 40_000).Before(large) || due(came.Add(11*time.Second), 40_000).Before(large) || !due(came, 1).After(came) {
		t.Error(large)
	}
}

func TestDeadlineAndCancellation(t *testing.T) {
	p := start(t, Config{Workers: 1})
	g := occupy(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := queue(ctx, t, p, "a", 1, 5, func() { t.Error("a cancelled job ran") })
	deadline, release := context.WithTimeout(t.Context(), time.Millisecond)
	defer release()
	if _, err := p.Do(deadline, "b", 1, &task{left: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	cancel()
	for range 5 {
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if p.depth() != 0 {
		t.Fatalf("%d jobs wait for nobody", p.depth())
	}
	close(g.leave)

	running, stop := context.WithCancel(t.Context())
	var steps atomic.Int32
	_, err := p.Do(running, "a", 1, &task{left: 1 << 30, each: func() {
		if steps.Add(1) == 3 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) || steps.Load() > 4 {
		t.Fatalf("%v after %d slices", err, steps.Load())
	}
}

func TestLongJobsHaveTheirTurns(t *testing.T) {
	p := start(t, Config{Workers: 1, ShortCost: 10})
	g := occupy(t, p)
	var shorts, before atomic.Int32
	short := queue(t.Context(), t, p, "a", 1, 1000, func() { shorts.Add(1) })
	long := queue(t.Context(), t, p, "a", 1000, 1, func() { before.Store(shorts.Load()) })
	close(g.leave)
	if err := <-long; err != nil {
		t.Fatal(err)
	}
	if n := before.Load(); n > 3*longTurn {
		t.Fatalf("a long job's third slice came after %d slices of short ones", n)
	}
	for range 1000 {
		if err := <-short; err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswerDoesNotWaitForAStep(t *testing.T) {
	p := start(t, Config{Workers: 1})
	g := newGate()
	ctx, leave := context.WithCancelCause(t.Context())
	why := errors.New("the caller has left")
	done := make(chan error)
	go func() {
		_, err := p.Do(ctx, "a", 5, g)
		done <- err
	}()
	<-g.entered
	leave(why)
	if err := <-done; !errors.Is(err, why) {
		t.Fatal(err)
	}
	if p.Cost() != 5 {
		t.Fatalf("cost %d while the step goes on", p.Cost())
	}
	close(g.leave)
	until(t, func() bool { return p.Cost() == 0 })
}

// Workers that do not come back are replaced, one by one, as often as it takes; the pool goes on.
func TestEndlessJobsDoNotTakeThePoolOut(t *testing.T) {
	const workers, endless = 2, 7
	var told atomic.Int32
	p := start(t, Config{
		Workers: workers, Stall: 20 * time.Millisecond, OnLost: func(caller string, since time.Duration) {
			if caller == "endless" && since >= 20*time.Millisecond {
				told.Add(1)
			}
		},
	})
	gates := make([]*gate, endless)
	answers := make(chan error, endless)
	for i := range gates {
		gates[i] = newGate()
		if err := p.Go(t.Context(), "endless", 1, gates[i], func(_ Times, err error) { answers <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range endless {
		if err := <-answers; code.Of(err) != wirev1.Code_CODE_INTERNAL {
			t.Fatal(err)
		}
	}
	if now, ever := p.Lost(); now != endless || ever != endless || told.Load() != endless {
		t.Fatalf("%d lost, %d ever, %d told", now, ever, told.Load())
	}
	if _, err := p.Do(t.Context(), "a", 1, &task{left: 3}); err != nil {
		t.Fatal(err)
	}
	for _, g := range gates {
		close(g.leave)
	}
	until(t, func() bool { now, _ := p.Lost(); return now == 0 && p.Cost() == 0 })
	if _, ever := p.Lost(); ever != endless {
		t.Fatal(ever)
	}
}

type bomb struct{}

func (bomb) Step(time.Duration) (bool, error) { panic("boom") }

func TestPanicIsAnsweredOnceAndTheWorkerGoesOn(t *testing.T) {
	var panics atomic.Int32
	p := start(t, Config{Workers: 1, OnPanic: func(any, []byte) { panics.Add(1) }})
	for range 3 {
		if _, err := p.Do(t.Context(), "a", 1, bomb{}); code.Of(err) != wirev1.Code_CODE_INTERNAL {
			t.Fatal(err)
		}
		if _, err := p.Do(t.Context(), "a", 1, &task{left: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if n := panics.Load(); n != 3 {
		t.Fatalf("%d panics told", n)
	}
}

func TestStopAnswersEverything(t *testing.T) {
	for _, patient := range []bool{true, false} {
		p := New(Config{Workers: 2, Queue: [Lanes]int{100, 100}, MaxCost: 1 << 30})
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		g, h := occupy(t, p), occupy(t, p)
		results := queue(t.Context(), t, p, "a", 1, 20, nil)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		stopped := make(chan error)
		go func() { stopped <- p.Stop(ctx) }()
		until(t, func() bool {
			soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := p.Do(soon, "late", 1, &task{left: 1})
			return errors.As(err, new(*code.Error))
		})
		want := wirev1.Code_CODE_OK
		if !patient {
			cancel()
			want = wirev1.Code_CODE_UNAVAILABLE
			until(t, func() bool { return p.depth() == 0 })
		}
		close(g.leave)
		close(h.leave)
		for range 20 {
			if err := <-results; code.Of(err) != want {
				t.Fatalf("%v, want %v", err, want)
			}
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		cancel()
	}
}

func TestTimes(t *testing.T) {
	p := start(t, Config{Workers: 1})
	g := occupy(t, p)
	got := make(chan Times, 1)
	go func() {
		times, err := p.Do(context.Background(), "a", 1, &task{left: 2, each: func() { spin(2 * time.Millisecond) }})
		if err != nil {
			t.Error(err)
		}
		got <- times
	}()
	until(t, func() bool { return p.depth() == 1 })
	spin(5 * time.Millisecond)
	close(g.leave)
	if times := <-got; times.Waited < 5*time.Millisecond || times.Ran < 4*time.Millisecond {
		t.Fatalf("%+v", times)
	}
}

func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
		continue
	}
}

// Callers of every kind at once: everything is answered, and nothing is left behind.
func TestStress(t *testing.T) {
	p := start(t, Config{Workers: 4, Queue: [Lanes]int{64, 16}, ShortCost: 5, MaxCost: 500})
	var wg sync.WaitGroup
	var refused, finished, cancelled atomic.Int32
	for c := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if i%7 == c%7 {
					cancel()
				}
				_, err := p.Do(ctx, fmt.Sprint("caller ", c), 1+i%10, &task{left: 1 + i%3})
				cancel()
				switch {
				case err == nil:
					finished.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				case code.Of(err) == wirev1.Code_CODE_OVERLOADED:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if finished.Load() == 0 || cancelled.Load() == 0 {
		t.Fatal(finished.Load(), cancelled.Load(), refused.Load())
	}
	if p.depth() != 0 || p.Cost() != 0 {
		t.Fatalf("left behind: %d jobs, cost %d", p.depth(), p.Cost())
	}
}

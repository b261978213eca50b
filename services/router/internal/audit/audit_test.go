package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// topics is where a test's records are published.
type topics struct {
	mu     sync.Mutex
	tries  int
	answer func(try int) error // nil: all is well
	keys   []string
	topics []string
	got    []Record
}

func (p *topics) publish(_ context.Context, topic string, data []byte, key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
	if p.answer != nil {
		if err := p.answer(p.tries); err != nil {
			return err
		}
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	p.keys, p.topics, p.got = append(p.keys, key), append(p.topics, topic), append(p.got, r)
	return nil
}

func (p *topics) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func change(n int) *Record {
	r := &Record{Time: time.Now(), Who: "backend:boss", Call: "pushmesh.v1.NamespaceService/Put", About: fmt.Sprint(n)}
	r.End(nil)
	return r
}

func start(t *testing.T, p *topics) (*Trail, *lines) {
	t.Helper()
	log := &lines{}
	trail := New(Config{Router: "r1", Run: 7, Publish: p.publish, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err := trail.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return trail, log
}

func lost(trail *Trail, c string) float64 { return testutil.ToFloat64(trail.lost.WithLabelValues(c)) }

func stop(t *testing.T, trail *Trail) {
	t.Helper()
	if err := trail.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Records are published one after the other, in the order of their numbers, until each is: what
// fails for now is tried again with the same key, and holds up nobody who tells of a change.
func TestRecordsArePublishedInOrderAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &topics{answer: func(try int) error {
			switch {
			case try <= 3:
				return context.DeadlineExceeded
			case try%2 == 0:
				return code.New(wirev1.Code_CODE_OVERLOADED, "later")
			}
			return nil
		}}
		trail, log := start(t, p)
		began := time.Now()
		for n := range 20 {
			trail.Tell(change(n))
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("who tells of a change waited %v", d)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		keys := map[string]bool{}
		for i, r := range p.got {
			keys[p.keys[i]] = true
			if r.Number != uint64(i+1) || r.About != fmt.Sprint(i) || p.topics[i] != "$audit/NamespaceService/Put" || r.Router != "r1" || r.ID == "" {
				t.Errorf("record %d on %s is %+v", i, p.topics[i], r)
			}
		}
		if len(keys) != 20 || len(p.got) != 20 || trail.Waiting() != 0 || testutil.ToFloat64(trail.published) != 20 {
			t.Errorf("%d records with %d keys, %d wait", len(p.got), len(keys), trail.Waiting())
		}
		if n := strings.Count(log.String(), "msg=audit"); n != 20 {
			t.Errorf("the log has %d", n)
		}
		stop(t, trail)
	})
}

// Beyond what may wait records are dropped and counted; the log has them, and the numbers of those
// that are published show the hole.
func TestWhatWaitsIsBoundedAndTheLogHasAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("no store")
		p := &topics{answer: func(int) error { return away }}
		trail, log := start(t, p)
		for n := range maxRecords + 10 {
			trail.Tell(change(n))
		}
		if trail.Waiting() != maxRecords || lost(trail, "QUEUE_FULL") != 10 {
			t.Errorf("%d wait, %v are lost", trail.Waiting(), lost(trail, "QUEUE_FULL"))
		}
		p.set(func() { p.answer = nil })
		<-time.After(time.Minute)
		trail.Tell(change(0))
		synctest.Wait()
		if last := p.got[len(p.got)-1]; len(p.got) != maxRecords+1 || last.Number != maxRecords+11 {
			t.Errorf("%d are published, the last one is number %d", len(p.got), last.Number)
		}
		if n := strings.Count(log.String(), "msg=audit"); n != maxRecords+11 {
			t.Errorf("the log has %d", n)
		}
		stop(t, trail)

		// large ones are bounded by their bytes
		p = &topics{answer: func(int) error { return away }}
		trail, _ = start(t, p)
		large := state(strings.Repeat("x", 1<<20))
		for range 1500 {
			r := change(0)
			r.Before, r.After = large, large
			trail.Tell(r)
		}
		if trail.Waiting() == 1500 || trail.bytes > maxBytes+(64<<10) {
			t.Errorf("%d records of %d bytes wait", trail.Waiting(), trail.bytes)
		}
		began := time.Now()
		stop(t, trail)
		if d := time.Since(began); d != drainTime || lost(trail, "DRAINING") != float64(trail.Waiting()) {
			t.Errorf("after %v %v are lost of %d", d, lost(trail, "DRAINING"), trail.Waiting())
		}
	})
}

// What is refused for good is counted, and does not hold up the next.
func TestARecordThatIsRefusedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &topics{answer: func(try int) error {
			if try == 1 {
				return code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "no")
			}
			return nil
		}}
		trail, log := start(t, p)
		trail.Tell(change(1))
		trail.Tell(change(2))
		stop(t, trail) // which waits for what can be published
		if len(p.got) != 1 || p.got[0].About != "2" || lost(trail, "INVALID_ARGUMENT") != 1 || !strings.Contains(log.String(), "refused") {
			t.Errorf("published: %v", p.got)
		}
	})
}

// A record is in the log however little else is told there.
func TestTheLogHasRecordsAtEveryLevel(t *testing.T) {
	log := &lines{}
	trail := New(Config{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelError + 4}))})
	r := change(1)
	r.End(code.New(wirev1.Code_CODE_CONFLICT, "it is built in"))
	r.Before = state(map[string]int{"n": 1})
	trail.Tell(r)
	for _, want := range []string{"msg=audit", "level=WARN", "who=backend:boss", "call=NamespaceService/Put", `before="{\"n\":1}"`, "outcome=CONFLICT", `message="it is built in"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in %s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "after=") {
		t.Error("what was not said is there")
	}
}

func TestStates(t *testing.T) {
	ctx, c := With(t.Context())
	if before, after := c.States(); before != nil || after != nil || !Asked(ctx) || Asked(t.Context()) {
		t.Error("something was said")
	}
	Before(t.Context(), 1) // nobody asks
	Before(ctx, nil)
	After(ctx, errors.Join(code.New(wirev1.Code_CODE_UNAVAILABLE, "away")))
	if before, after := c.States(); string(before) != "null" || string(after) != `"unknown: UNAVAILABLE"` {
		t.Errorf("%s, %s", before, after)
	}
	After(ctx, &pushmeshv1.Namespace{Prefix: "a", Version: 3})
	if _, after := c.States(); string(after) != `{"prefix":"a","version":"3"}` {
		t.Errorf("%s", after)
	}
	After(ctx, func() {})
	if _, after := c.States(); !strings.Contains(string(after), "unknown") {
		t.Errorf("%s", after)
	}
	for _, long := range []string{strings.Repeat("ü", maxState), strings.Repeat("\x00\n\"", maxState), strings.Repeat("x", maxState-2)} {
		Before(ctx, long)
		before, _ := c.States()
		var text string
		if err := json.Unmarshal(before, &text); err != nil || !utf8.ValidString(text) || len(text) > maxState+len(cutMark) || len(before) > 8*maxState {
			t.Errorf("%d bytes: %v", len(before), err)
		}
		if cut := strings.HasSuffix(text, cutMark); cut != (len(long) > maxState) {
			t.Errorf("cut: %v", cut)
		}
	}
}

// A policy that was stored before its secrets were refused is told without them.
func TestURLsAreToldWithoutSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		"https://u:%s@h.example/path?key=%s#%s": "https://h.example/path…",
		"https://h.example/path":                "https://h.example/path",
		"https://h.example/%%zz%s":              "…",
	} {
		raw = fmt.Sprintf(raw, []any{"secret", "secret", "secret"}[:strings.Count(raw, "%s")]...)
		ns := &pushmeshv1.Namespace{Prefix: "a", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Prepare: &pushmeshv1.ClaimPrepare{Url: raw}}}}
		got := string(state(ns))
		if !strings.Contains(got, `"`+want+`"`) || strings.Contains(got, "secret") {
			t.Errorf("%s is told as %s", raw, got)
		}
		if ns.GetPolicy().GetClaims().GetPrepare().GetUrl() != raw {
			t.Error("the policy was changed")
		}
	}
}

// Who tells of a change waits until its line is written, and for a second at most where nobody
// reads the log.
func TestALineIsWrittenBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		read := make(chan struct{})
		saw := ""
		trail := New(Config{Log: slog.New(slog.NewTextHandler(log, nil)), Written: func(ctx context.Context) bool {
			saw = log.String()
			select {
			case <-read:
				return true
			case <-ctx.Done():
				return false
			}
		}})
		began := time.Now()
		trail.Tell(change(1))
		if d := time.Since(began); d != logTime || !strings.Contains(saw, "about=1") {
			t.Errorf("it went on after %v; before that the log had %q", d, saw)
		}
		go func() {
			<-time.After(10 * time.Millisecond)
			close(read)
		}()
		began = time.Now()
		trail.Tell(change(2))
		if d := time.Since(began); d != 10*time.Millisecond {
			t.Errorf("it went on after %v", d)
		}
	})
}

// A change that ends when the trail has stopped is in the log, and counted as lost to $audit.
func TestWhatComesAfterTheStopIsCounted(t *testing.T) {
	p := &topics{}
	trail, log := start(t, p)
	stop(t, trail)
	trail.Tell(change(1))
	if n := lost(trail, "DRAINING"); n != 1 || trail.Waiting() != 0 || !strings.Contains(log.String(), "about=1") {
		t.Errorf("%v counted, %d wait; the log has %q", n, trail.Waiting(), log.String())
	}
}

// Many changes at a time, as of a file of sessions that get other owners, come faster than one
// after the other is published: they wait for that, and all are on $audit.
func TestManyChangesAreAllPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * maxRecords
		p := &topics{answer: func(int) error {
			<-time.After(5 * time.Millisecond) // the time of a commit
			return nil
		}}
		trail, _ := start(t, p)
		var work sync.WaitGroup
		for range 16 {
			work.Go(func() {
				for range n / 16 {
					<-time.After(20 * time.Millisecond)
					trail.Tell(change(1))
				}
			})
		}
		work.Wait()
		for trail.Waiting() > 0 {
			<-time.After(time.Second)
		}
		stop(t, trail)
		if len(p.got) != n || lost(trail, "QUEUE_FULL") != 0 {
			t.Errorf("%d of %d are published, %v lost", len(p.got), n, lost(trail, "QUEUE_FULL"))
		}
	})
}

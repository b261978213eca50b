package filters

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// patience is how long anything may take that must happen.
const patience = 2 * time.Minute

// staged is a stage, and the order in which what was put in is done.
type staged struct {
	*Stage
	t  *testing.T
	wg sync.WaitGroup

	mu   sync.Mutex
	done []string
	more chan struct{} // has a token once something was done
}

func newStaged(t *testing.T, r *Registry, cfg StageConfig) *staged {
	return &staged{Stage: NewStage(r, cfg), t: t, more: make(chan struct{}, 1)}
}

// begin has the stage served until the test ends.
func (s *staged) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	for range s.Workers() {
		s.wg.Go(func() { s.Serve(ctx) })
	}
	s.t.Cleanup(func() { cancel(); s.wg.Wait() })
}

func (s *staged) put(topic string, n int, payload string) wirev1.Code {
	var messages []*exchange.Message
	for range n {
		messages = append(messages, message(s.t, topic, &wirev1.Message{Payload: []byte(payload)}, nil))
	}
	return s.Put(topic, messages, func() {
		if !s.registry.Judged(messages) {
			s.t.Error("done before it was judged")
		}
		s.Release(topic, messages)
		s.mu.Lock()
		s.done = append(s.done, topic)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	})
}

// wait until so many are done, and return their topics.
func (s *staged) wait(n int) []string {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		done := s.done
		s.mu.Unlock()
		if len(done) >= n {
			return done
		}
		select {
		case <-s.more:
		case <-late:
			s.t.Fatalf("%d of %d are done", len(done), n)
		}
	}
}

func add(t *testing.T, r *Registry, n int, topic, text string) {
	t.Helper()
	if _, err := r.Add(key(n), topic, text); err != nil {
		t.Fatal(err)
	}
}

// What is put in for a topic is done in that order, whoever judges, and everything is.
func TestATopicsMessagesStayInOrder(t *testing.T) {
	const topics, each = 8, 300
	r := New(Config{Budget: time.Second})
	add(t, r, 1, "#", "payload.list.exists(x, x > 2.0)")
	s := NewStage(r, StageConfig{Workers: 4})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range s.Workers() {
		wg.Go(func() { s.Serve(ctx) })
	}
	defer func() { cancel(); wg.Wait() }()
	// each touched by one worker at a time: the race detector sees where not
	next := make([]int, topics)
	all := make(chan struct{}, topics*each)
	for n := range each {
		for i := range topics {
			name := fmt.Sprint("t/", i)
			messages := []*exchange.Message{message(t, name, &wirev1.Message{Payload: []byte(`{"list": [1, 2, 3]}`)}, nil)}
			if c := s.Put(name, messages, func() {
				if next[i] != n {
					t.Errorf("%s: %d came, want %d", name, n, next[i])
				}
				next[i]++
				s.Release(name, messages)
				all <- struct{}{}
			}); c != wirev1.Code_CODE_OK {
				t.Fatal(c)
			}
		}
	}
	for range topics * each {
		select {
		case <-all:
		case <-time.After(patience):
			t.Fatal("not everything is done")
		}
	}
	if st := s.Stats(); st.Messages.Load() != 0 || st.Bytes.Load() != 0 || len(s.lanes) != 0 || s.Busy("t/0") {
		t.Errorf("%d messages, %d bytes, %d topics are left", st.Messages.Load(), st.Bytes.Load(), len(s.lanes))
	}
}

// A topic whose messages are dear waits for itself: others have their turn after each of them.
func TestDearTopicsWaitForThemselves(t *testing.T) {
	const dear = 10
	r := New(Config{Budget: time.Second})
	for i := range 5 { // more than a turn together
		add(t, r, i, "dear", fmt.Sprintf("payload.exists(x, x > %d.0)", 1000+i))
	}
	add(t, r, 100, "cheap/+", "payload == 1.0")
	s := newStaged(t, r, StageConfig{Workers: 1})
	list := "[" + strings.Repeat("1,", 1000) + "1]"
	for range dear {
		s.put("dear", 1, list)
	}
	for i := range 3 {
		s.put(fmt.Sprint("cheap/", i), 1, "1")
	}
	s.put("dear", dear, list) // a range, which is interrupted too
	s.begin()
	done := s.wait(dear + 3 + 1)
	if got := strings.Join(done[:4], " "); got != "dear cheap/0 cheap/1 cheap/2" {
		t.Errorf("done first: %s", got)
	}
}

// One topic has half of the room at most, two have a third each, so that another finds some; what
// finds none is refused and counted.
func TestAStageIsBounded(t *testing.T) {
	s := newStaged(t, New(Config{}), StageConfig{Messages: 120})
	fill := func(topic string) (n int) {
		for ; s.put(topic, 1, "x") == wirev1.Code_CODE_OK; n++ {
		}
		return n
	}
	a, b, c := fill("a"), fill("b"), fill("c")
	if a != 60 || b != 30 || c != 15 || s.Stats().Full.Load() != 3 {
		t.Errorf("%d, %d and %d have room, %d were refused", a, b, c, s.Stats().Full.Load())
	}
	if !s.Busy("a") || s.Busy("d") {
		t.Error("it does not know what waits")
	}
	s.begin()
	s.wait(a + b + c)
	if s.Busy("a") || fill("a") == 0 {
		t.Error("there is no room though nothing waits")
	}

	s = newStaged(t, New(Config{}), StageConfig{Bytes: 100_000})
	if c := s.put("a", 1, strings.Repeat("x", 99_000)); c != wirev1.Code_CODE_OK {
		t.Error(c)
	}
	if c := s.put("a", 1, strings.Repeat("x", 1000)); c != wirev1.Code_CODE_MEMORY_BUDGET || s.Stats().NoMemory.Load() != 1 {
		t.Errorf("%v, %d", c, s.Stats().NoMemory.Load())
	}
}

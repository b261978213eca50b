package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// loop keeps the events it is told.
type loop struct {
	mu     sync.Mutex
	full   bool
	forget bool
	events []exchange.Event
	onPost func(exchange.Event)
}

func (l *loop) Post(e exchange.Event) bool {
	l.mu.Lock()
	if _, live := e.(exchange.Live); live && l.full {
		l.mu.Unlock()
		return false
	}
	if !l.forget {
		l.events = append(l.events, e)
	}
	f := l.onPost
	l.mu.Unlock()
	if f != nil {
		f(e)
	}
	return true
}

func (l *loop) fill(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

// live is what came of a topic, as "seq seq …"; a new epoch is marked.
func (l *loop) live(topic string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	epoch := uint64(edgetest.Epoch)
	for _, e := range l.events {
		live, ok := e.(exchange.Live)
		if !ok {
			continue
		}
		for _, m := range live.Messages {
			if m.Topic != topic {
				continue
			}
			if m.Epoch != epoch && m.Epoch != 0 {
				epoch = m.Epoch
				out = append(out, "new")
			}
			out = append(out, fmt.Sprint(m.Seq))
		}
	}
	return strings.Join(out, " ")
}

// messages that came of a topic.
func (l *loop) messages(topic string) (out []*exchange.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if live, ok := e.(exchange.Live); ok {
			for _, m := range live.Messages {
				if m.Topic == topic {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

// next takes out the first event of a kind, waiting for it.
func next[E exchange.Event](t testing.TB, l *loop) E {
	t.Helper()
	var found E
	edgetest.WaitFor(t, fmt.Sprintf("a %T", found), func() error {
		var ok bool
		if found, ok = take[E](l); !ok {
			return errors.New("only others came")
		}
		return nil
	})
	return found
}

// take takes out the first event of a kind, if there is one.
func take[E exchange.Event](l *loop) (found E, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.events {
		if one, ok := e.(E); ok {
			l.events = slices.Delete(l.events, i, i+1)
			return one, true
		}
	}
	return found, false
}

var quiet = slog.New(slog.DiscardHandler)

type world struct {
	t      testing.TB
	nats   *edgetest.NATS
	store  *edgetest.Store
	router *edgetest.Router
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, nats: edgetest.NewNATS(t), store: edgetest.NewStore(t)}
	w.router = edgetest.NewRouter(t, w.nats, "r1", "e1")
	return w
}

func durable(topic string) bool { return strings.HasPrefix(topic, "room/") }

// edge starts a mesh with fake loops.
func (w *world) edge(id string, loops int, change ...func(*Config)) (*Mesh, []*loop) {
	w.t.Helper()
	client := storeclient.New(storeclient.Config{Seeds: []string{w.store.Addr()}, Log: quiet})
	if err := client.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	cfg := Config{
		ID: id, Incarnation: incarnation.New(), Bus: w.nats.Bus(id), Store: client, Durable: durable,
		DurableAny:  func(filter string) bool { return !strings.HasPrefix(filter, "cursor/") },
		Connections: func() int { return 3 }, Log: quiet, Tracer: noop.NewTracerProvider().Tracer(""),
	}
	for _, f := range change {
		f(&cfg)
	}
	m := New(cfg)
	fakes, as := make([]*loop, loops), make([]exchange.Loop, loops)
	for i := range fakes {
		fakes[i] = &loop{}
		as[i] = fakes[i]
	}
	m.SetLoops(as)
	if err := m.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), edgetest.Patience)
	defer cancel()
	if err := cfg.Bus.Flush(ctx); err != nil { // NATS knows the subscriptions before anybody asks
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), edgetest.Patience)
		defer cancel()
		if err := m.Stop(ctx); err != nil {
			w.t.Error(err)
		}
		if err := client.Stop(ctx); err != nil {
			w.t.Error(err)
		}
	})
	edgetest.WaitFor(w.t, "the store's owners", client.Check)
	return m, fakes
}

func conn(loop uint16, slot uint32) exchange.Conn {
	return exchange.Conn{Loop: loop, Slot: slot, Gen: 1}
}

// join joins and waits for the answer.
func join(t testing.TB, m *Mesh, l *loop, filter string) exchange.Joined {
	t.Helper()
	m.Join(conn(0, 1), 1, filter, true, 0)
	j := next[exchange.Joined](t, l)
	if j.Err != nil {
		t.Fatal(j.Err)
	}
	return j
}

func waitLive(t testing.TB, l *loop, topic, want string) {
	t.Helper()
	edgetest.WaitFor(t, "messages of "+topic, func() error {
		if got := l.live(topic); got != want {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		return nil
	})
}

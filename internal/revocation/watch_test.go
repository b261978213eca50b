package revocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/newest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// store keeps revocations, each a version of its own, and answers in pages of two.
type store struct {
	mu    sync.Mutex
	down  bool
	all   []*pushmeshv1.Revocation
	base  uint64 // version without any
	asked int
}

func (s *store) ListRevocations(_ context.Context, req *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.down {
		return nil, errors.New("no store")
	}
	have, newest := req.GetHaveVersion(), s.base+uint64(len(s.all))
	resp := &meshv1.StoreServiceListRevocationsResponse{Version: newest}
	if resp.Anew = have > newest; resp.Anew {
		have = 0
	}
	for _, r := range s.all {
		if r.Version <= have {
			continue
		}
		if len(resp.Revocations) == 2 {
			resp.More, resp.Version = true, resp.Revocations[1].Version
			break
		}
		resp.Revocations = append(resp.Revocations, r)
	}
	return resp, nil
}

// revoke a user, which has the version that is returned.
func (s *store) revoke(user string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.base + uint64(len(s.all)) + 1
	now := uint64(time.Now().UnixMicro())
	s.all = append(s.all, &pushmeshv1.Revocation{User: user, At: now, Until: now + 3600*second, Version: version})
	return version
}

func (s *store) set(f func(*store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// wires is a bus that brings what the test sends.
type wires struct {
	mu       sync.Mutex
	handlers map[string]func([]byte)
	gap      func()
}

func (w *wires) Subscribe(subject string, _ int, handle func([]byte, func([]byte) error)) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handlers == nil {
		w.handlers = map[string]func([]byte){}
	}
	w.handlers[subject] = func(data []byte) { handle(data, nil) }
	return func() {}, nil
}
func (w *wires) OnGap(f func())  { w.gap = f }
func (w *wires) Connected() bool { return true }

func (w *wires) beat(t *testing.T, version uint64) {
	t.Helper()
	data, err := proto.Marshal(&meshv1.StoreBeat{StoreId: "s", RevocationsVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	w.handlers[bus.StoreBeat](data)
}

// follow starts a watch in a bubble of time.
func follow(t *testing.T, s *store, b newest.Bus) *Watch {
	t.Helper()
	w := NewWatch(s, b, time.Now, slog.New(slog.DiscardHandler))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func refused(w *Watch, user string) wirev1.Code {
	if why := w.Refuses(Token{User: user}, uint64(time.Now().UnixMicro())); why != nil {
		return why.Code
	}
	return wirev1.Code_CODE_OK
}

// within waits until a user's token is refused so, and says for how long.
func within(t *testing.T, w *Watch, user string, want wirev1.Code) time.Duration {
	t.Helper()
	began := time.Now()
	for refused(w, user) != want {
		if time.Since(began) > time.Minute {
			t.Fatalf("after a minute %s is answered %v, want %v", user, refused(w, user), want)
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
	}
	return time.Since(began)
}

// Without the list no token is taken, for a while; once it is known it stays so without a store.
func TestNoTokenIsTakenBeforeTheListIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{base: 1, down: true}
		for i := range 5 {
			s.revoke(fmt.Sprint("u", i))
		}
		w := follow(t, s, nil)
		if why := w.Refuses(Token{User: "bob"}, 0); why == nil || why.Code != wirev1.Code_CODE_UNAVAILABLE || why.RetryAfter == 0 || w.Check() == nil {
			t.Errorf("without the list: %v, %v", why, w.Check())
		}
		s.set(func(s *store) { s.down = false })
		if took := within(t, w, "bob", wirev1.Code_CODE_OK); took > 300*time.Millisecond {
			t.Errorf("the list is taken after %v", took)
		}
		for i := range 5 {
			if got := refused(w, fmt.Sprint("u", i)); got != wirev1.Code_CODE_UNAUTHENTICATED {
				t.Errorf("user %d: %v", i, got)
			}
		}
		s.set(func(s *store) { s.down = true })
		<-time.After(time.Hour / 2)
		if w.Check() != nil || refused(w, "bob") != wirev1.Code_CODE_OK || refused(w, "u1") != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Error("what is known is forgotten without a store")
		}
	})
}

// A change is seen at once where the notice comes, with the next beat where it is lost, and within
// a second where nothing comes at all.
func TestAChangeIsSeen(t *testing.T) {
	for what, c := range map[string]struct {
		nats   bool
		notice func(t *testing.T, n *wires, version uint64)
		most   time.Duration
	}{
		"by its notice": {true, func(_ *testing.T, n *wires, _ uint64) { n.handlers[bus.RevocationsChanged](nil) }, 10 * time.Millisecond},
		"by a beat":     {true, func(t *testing.T, n *wires, version uint64) { n.beat(t, version) }, 10 * time.Millisecond},
		"after a gap":   {true, func(_ *testing.T, n *wires, _ uint64) { n.gap() }, 10 * time.Millisecond},
		"without beats": {true, nil, time.Second},
		"without NATS":  {false, nil, time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := &store{base: 1}, &wires{}
				var b newest.Bus
				if c.nats {
					b = n
				}
				w := follow(t, s, b)
				changes := make(chan struct{}, 100)
				w.OnChange(func() { changes <- struct{}{} })
				<-time.After(10 * time.Second)
				for i := range 5 {
					user := fmt.Sprint("u", i)
					version := s.revoke(user)
					if c.notice != nil {
						c.notice(t, n, version)
					}
					if took := within(t, w, user, wirev1.Code_CODE_UNAUTHENTICATED); took > c.most {
						t.Errorf("seen after %v", took)
					}
					if <-changes; len(changes) != 0 || w.List().Version() != version {
						t.Errorf("%d changes more, version %d of %d", len(changes), w.List().Version(), version)
					}
				}
			})
		})
	}
}

// While beats say that nothing is new a store is asked seldom.
func TestAStoreIsAskedSeldomWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := &store{base: 1}, &wires{}
		follow(t, s, n)
		for range 200 {
			n.beat(t, 1)
			<-time.After(500 * time.Millisecond)
		}
		s.set(func(s *store) {
			if s.asked < 20 || s.asked > 25 {
				t.Errorf("it is asked %d times in 100 s", s.asked)
			}
		})
	})
}

// Where stores name a newer list that can't be had, no token is taken after a while; a database
// that was restored from a backup counts, whatever was named before.
func TestAListThatIsOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := &store{base: 1}, &wires{}
		s.revoke("ann")
		w := follow(t, s, n)
		within(t, w, "bob", wirev1.Code_CODE_OK)
		s.set(func(s *store) { s.down = true })
		n.beat(t, s.revoke("bob"))
		took := within(t, w, "bob", wirev1.Code_CODE_UNAVAILABLE)
		if took < newest.StaleAfter || took > newest.StaleAfter+time.Second || w.Check() == nil {
			t.Errorf("after %v: %v", took, w.Check())
		}
		if refused(w, "ann") != wirev1.Code_CODE_UNAUTHENTICATED {
			t.Error("who is known to be revoked may come back later")
		}
		s.set(func(s *store) { s.down = false })
		within(t, w, "bob", wirev1.Code_CODE_UNAUTHENTICATED)
		if w.Check() != nil || refused(w, "carl") != wirev1.Code_CODE_OK {
			t.Error("it is out of date still")
		}
		s.set(func(s *store) { s.all = nil })
		within(t, w, "bob", wirev1.Code_CODE_OK)
		if refused(w, "ann") != wirev1.Code_CODE_OK || w.List().Version() != 1 {
			t.Errorf("restored from a backup, version %d", w.List().Version())
		}
	})
}

// lost has pages that never end.
type lost struct{}

func (lost) ListRevocations(context.Context, *meshv1.StoreServiceListRevocationsRequest) (*meshv1.StoreServiceListRevocationsResponse, error) {
	return &meshv1.StoreServiceListRevocationsResponse{Version: 5, More: true}, nil
}

func TestPagesThatNeverEnd(t *testing.T) {
	w := NewWatch(lost{}, nil, time.Now, slog.New(slog.DiscardHandler))
	if err := w.ask(t.Context(), nil, func(*List) { t.Error("it is taken") }); err == nil || w.List() != nil {
		t.Errorf("%v, %v", err, w.List())
	}
}

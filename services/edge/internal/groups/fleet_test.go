package groups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// fleet is edges whose processes die, freeze and come back, a store and a bus that go away, and
// clients that come and go. Time is fake.
type fleet struct {
	t  *testing.T
	mu sync.Mutex
	// Below mu. What fails now: all calls of the store, all frames of the bus, or some frames.
	rand      *rand.Rand
	storeAway bool
	busAway   bool
	loss      float64
	procs     map[string]*process // the newest of each edge
	started   uint64
	store     lease
	logs      map[string][]*exchange.Message
	acked     map[message]bool
	first     map[message]bool // delivered as if for the first time
	began     time.Time
	story     []event // what happened, to be told where something is missing
	lives     []*life // of all memberships
}

// lease is what the store has of the group.
type lease struct {
	holder     string
	generation uint64
	until      time.Time
	cursors    map[string]*meshv1.SessionCursor
	filters    map[string]bool
	resumed    bool
}

const groupFilter = "room/+"

func newFleet(t *testing.T, seed uint64, edges ...string) *fleet {
	f := &fleet{
		t: t, rand: rand.New(rand.NewPCG(seed, 3)), procs: map[string]*process{}, logs: map[string][]*exchange.Message{}, acked: map[message]bool{}, first: map[message]bool{},
		began: time.Now(), store: lease{cursors: map[string]*meshv1.SessionCursor{}, filters: map[string]bool{}},
	}
	for _, id := range edges {
		f.start(id)
	}
	return f
}

func (f *fleet) chance(p float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.Float64() < p
}

// upTo is a random time up to d.
func (f *fleet) upTo(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rand.Int64N(int64(d) + 1))
}

func (f *fleet) start(id string) *process {
	f.mu.Lock()
	f.started++
	p := &process{f: f, id: id}
	incarnation := f.started * 1e6
	f.mu.Unlock()
	p.Groups = New(Config{
		Edge: id, Incarnation: incarnation, Loop: 9, Store: p, Mesh: p, Request: p.request, Durable: func(string) bool { return true },
		MaxAttempts: func(string) uint32 { return 1000 }, Log: slog.New(slog.DiscardHandler),
	})
	p.loop = newClients(p)
	if err := p.Start(context.Background()); err != nil {
		f.t.Error(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.procs[id] = p
	f.tell(message{}, "%s is started as %d", id, incarnation)
	return p
}

func (f *fleet) stop() {
	for _, p := range f.procs {
		p.kill()
	}
	pass(3 * time.Second) // what is under way between them has come to nothing
}

// event is what happened to a message, or with no topic to an edge or the lease.
type event struct {
	at   time.Duration
	of   message
	what string
}

// tell notes what happened; mu is held.
func (f *fleet) tell(of message, format string, args ...any) {
	f.story = append(f.story, event{time.Since(f.began), of, fmt.Sprintf(format, args...)})
}

// tale logs what happened to edges and the lease, and to the first of some messages.
func (f *fleet) tale(of []message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.story {
		if e.of.topic == "" || len(of) > 0 && e.of == of[0] {
			f.t.Logf("%6.3f %s", e.at.Seconds(), e.what)
		}
	}
}

func (f *fleet) process(id string) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.procs[id]
}

// publish appends a message to a topic, and hands it to every edge that wants it and that it
// reaches.
func (f *fleet) publish(name string, reaches bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := wire.Body(&wirev1.Message{Payload: []byte("x")})
	if err != nil {
		f.t.Error(err)
	}
	seq := uint64(len(f.logs[name])) + 1
	m := &exchange.Message{Topic: name, Epoch: 1, Seq: seq, Frame: wire.AppendMessage(nil, name, seq, body)}
	f.logs[name] = append(f.logs[name], m)
	for _, p := range f.procs {
		if p.joins > 0 && !p.dead && reaches && !f.busAway {
			p.Groups.Post(exchange.Live{Messages: []*exchange.Message{m}})
		}
	}
}

// missing are the messages that no member has ACKed.
func (f *fleet) missing() (all []message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, log := range f.logs {
		for _, m := range log {
			if k := (message{name, m.Epoch, m.Seq}); !f.acked[k] {
				all = append(all, k)
			}
		}
	}
	return all
}

// process is one of an edge: its Groups, and the store, the mesh and the loop that they know. What
// a process that was killed asks for is not done, but frames that have left arrive.
type process struct {
	*Groups
	f    *fleet
	id   string
	loop *clients

	// Below f.mu.
	dead  bool
	joins int
	thaw  chan struct{} // nil, or closed when it goes on
	saves []func()      // that the store has not answered; the first is under way
}

func (p *process) over() bool {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.dead
}

// kill ends the process: nothing that it has not sent leaves it.
func (p *process) kill() {
	p.f.mu.Lock()
	p.dead = true
	p.f.tell(message{}, "%s is killed", p.id)
	p.f.mu.Unlock()
	p.wake()
	p.loop.stop()
	for _, m := range p.loop.all {
		p.loop.ends(m, false)
	}
	if err := p.work.Stop(context.Background()); err != nil {
		p.f.t.Error(err)
	}
}

// freeze has the process compute nothing until wake; its timers go on.
func (p *process) freeze() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.dead || p.thaw != nil {
		return
	}
	thaw := make(chan struct{})
	p.thaw = thaw
	p.ops.Do(func() { <-thaw })
	p.loop.ops.Do(func() { <-thaw })
}

func (p *process) wake() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.thaw != nil {
		close(p.thaw)
		p.thaw = nil
	}
}

var errAway = errors.New("away")

// reach waits until a call has come to the store, or back from it; an error is that it has not.
func (p *process) reach(ctx context.Context) error {
	pass(p.f.upTo(20 * time.Millisecond))
	for range 2 {
		p.f.mu.Lock()
		away := p.f.storeAway || p.dead
		p.f.mu.Unlock()
		if !away {
			return nil
		}
		select {
		case <-ctx.Done():
			return errAway
		case <-time.After(300 * time.Millisecond):
		}
	}
	return errAway
}

func (p *process) AttachSession(ctx context.Context, req *meshv1.AttachSessionRequest) (*meshv1.AttachSessionResponse, error) {
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	resp := p.f.attach(p.id, req)
	if err := p.reach(ctx); err != nil || ctx.Err() != nil {
		return nil, errAway
	}
	return resp, nil
}

func (f *fleet) attach(id string, req *meshv1.AttachSessionRequest) *meshv1.AttachSessionResponse {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.store
	if req.GetPeek() || l.holder != "" && l.holder != id && time.Now().Before(l.until) {
		return &meshv1.AttachSessionResponse{PreviousEdge: l.holder}
	}
	l.generation++
	resp := &meshv1.AttachSessionResponse{Generation: l.generation, Resumed: l.resumed, PreviousEdge: l.holder}
	for filter := range l.filters {
		resp.Filters = append(resp.Filters, filter)
	}
	for _, c := range l.cursors {
		resp.Cursors = append(resp.Cursors, c)
	}
	f.tell(message{}, "the lease goes to %s, after %q", id, l.holder)
	l.resumed, l.holder, l.until = true, id, time.Now().Add(time.Duration(req.GetLeaseMs())*time.Millisecond)
	return resp
}

func (p *process) RenewLeases(ctx context.Context, req *meshv1.RenewLeasesRequest) *meshv1.RenewLeasesResponse {
	if p.reach(ctx) != nil {
		return &meshv1.RenewLeasesResponse{Codes: []wirev1.Code{wirev1.Code_CODE_UNAVAILABLE}}
	}
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if req.GetLeases()[0].GetGeneration() != p.f.store.generation {
		return &meshv1.RenewLeasesResponse{Codes: []wirev1.Code{wirev1.Code_CODE_SESSION_TAKEN_OVER}}
	}
	p.f.store.until = time.Now().Add(time.Duration(req.GetLeaseMs()) * time.Millisecond)
	return &meshv1.RenewLeasesResponse{Codes: []wirev1.Code{wirev1.Code_CODE_OK}}
}

func (p *process) Hold(exchange.Conn, string, string, uint64) {}

// Join is answered with the heads that there are when the answer is made: what comes later comes
// live.
func (p *process) Join(conn exchange.Conn, sub uint32, _ string, _ bool, _ int) {
	p.f.mu.Lock()
	p.joins++
	p.f.mu.Unlock()
	go func() {
		err := p.reach(context.Background())
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		e := exchange.Joined{Conn: conn, Sub: sub}
		if err != nil {
			e.Err = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no heads")
		}
		for name, log := range p.f.logs {
			e.Heads = append(e.Heads, exchange.Head{Topic: name, Epoch: 1, Head: uint64(len(log)), Oldest: 1})
		}
		p.Groups.Post(e)
	}()
}

func (p *process) HasMembers(string, bool) {}

func (p *process) Leave(uint16, string) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.joins--
}

func (p *process) Read(_ uint16, name string, _, from, _ uint64, _ int) {
	go func() {
		err := p.reach(context.Background())
		p.f.mu.Lock()
		defer p.f.mu.Unlock()
		log := p.f.logs[name]
		r := exchange.Range{Topic: name, From: from, Epoch: 1, Head: uint64(len(log)), Oldest: 1}
		if err != nil {
			r.Err = code.Retry(wirev1.Code_CODE_UNAVAILABLE, time.Second, "no log")
		} else {
			r.Messages = slices.Clone(log[min(int(from)-1, len(log)):min(int(from)+99, len(log))])
		}
		p.Groups.Post(r)
	}()
}

// Save is done in order, and tried until the store takes it or has another holder; who waits for
// the answer is told of the trouble before.
func (p *process) Save(conn exchange.Conn, ref uint32, s *meshv1.SessionWrite, _ bool) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.saves = append(p.saves, func() {
		told := ref == 0
		for tries := 1; p.reach(context.Background()) != nil; tries++ {
			if p.over() {
				return
			}
			if !told && tries == 4 {
				told = true
				p.Groups.Post(exchange.Saved{Conn: conn, Ref: ref, Err: errAway})
			}
		}
		stale := !p.f.save(s)
		if stale {
			p.Groups.Post(exchange.Detached{Conn: conn})
		}
		if !told {
			e := exchange.Saved{Conn: conn, Ref: ref}
			if stale {
				e.Err = code.New(wirev1.Code_CODE_SESSION_TAKEN_OVER, "another edge has the group")
			}
			p.Groups.Post(e)
		}
	})
	if len(p.saves) == 1 {
		go p.write()
	}
}

func (p *process) write() {
	for {
		p.f.mu.Lock()
		next := p.saves[0]
		p.f.mu.Unlock()
		next()
		p.f.mu.Lock()
		p.saves = p.saves[1:]
		done := len(p.saves) == 0
		p.f.mu.Unlock()
		if done {
			return
		}
	}
}

func (f *fleet) save(s *meshv1.SessionWrite) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &f.store
	if s.GetGeneration() != l.generation {
		return false
	}
	for _, c := range s.GetCursors() {
		l.cursors[c.GetTopic()] = c
	}
	for _, filter := range s.GetAddFilters() {
		l.filters[filter] = true
	}
	for _, filter := range s.GetRemoveFilters() {
		delete(l.filters, filter)
	}
	if s.GetDetach() {
		l.holder = ""
	}
	return true
}

// request carries a frame to another edge, to whichever of its processes is there when it comes.
func (p *process) request(ctx context.Context, to string, frame []byte) ([]byte, error) {
	f := p.f
	if p.over() {
		return nil, errAway
	}
	answer := make(chan []byte, 1)
	refused := make(chan struct{})
	late := f.upTo(5 * time.Millisecond)
	if f.chance(0.02) {
		late = f.upTo(2 * time.Second) // it waits somewhere on the way
	}
	go func() { // also if who asked is dead by then
		pass(late)
		f.mu.Lock()
		lost := f.busAway || f.rand.Float64() < f.loss
		q := f.procs[to]
		gone := q == nil || q.dead
		f.mu.Unlock()
		switch {
		case lost:
		case gone:
			close(refused) // nobody is subscribed
		default:
			q.Receive(frame, func(b []byte) error {
				if !f.chance(f.loss) {
					answer <- b
				}
				return nil
			})
		}
	}()
	select {
	case b := <-answer:
		return b, nil
	case <-refused:
	case <-ctx.Done():
	}
	return nil, errAway
}

// Post takes what the members here are told.
func (p *process) Post(_ uint16, e exchange.Event) {
	if !p.over() {
		p.loop.post(e)
	}
}

package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// startNATS runs a real server in the process.
func startNATS(tb testing.TB, port int) *natsserver.Server {
	tb.Helper()
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, MaxPayload: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	go srv.Start()
	if !srv.ReadyForConnections(patience) {
		tb.Fatal("nats-server is not ready")
	}
	tb.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return srv
}

// fakeEdge announces interest, decodes frames and checks their numbers.
type fakeEdge struct {
	tb          testing.TB
	id          string
	incarnation uint64
	bus         *bus.Bus
	routers     []string // those that are to apply what it announces

	mu         sync.Mutex
	filters    map[string]bool
	version    uint64
	mute       bool // answers no snapshot and sends no digest
	discard    bool // counts frames without decoding them
	last       map[uint64]uint64
	applied    map[string]uint64 // by router
	holes      int
	beats      int
	leaving    bool
	events     uint32
	deliveries []*meshv1.Delivery
	checks     []string
	counts     map[string]uint64
	disconnect []*meshv1.DisconnectClients
	profiles   []*meshv1.ReplaceProfile
	yields     []*meshv1.YieldSession
	reporter   *presence.Reporter // nil: tells of no members
	// by topic, in the order of their ids; nil: lists are not answered
	members map[string][]*meshv1.PresenceMember
}

func startEdge(tb testing.TB, url, id string, routers ...string) *fakeEdge {
	tb.Helper()
	e := &fakeEdge{
		tb: tb, id: id, incarnation: incarnation.New(), routers: routers,
		bus:     bus.New(bus.Config{URL: url, Name: id, Mesh: meshidtest.Identity(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}),
		filters: map[string]bool{}, last: map[uint64]uint64{}, counts: map[string]uint64{}, applied: map[string]uint64{},
	}
	if err := e.bus.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "edge connects", e.bus.Check)
	for subject, handle := range map[string]func([]byte, func([]byte) error){
		bus.EdgeFrames(id): e.frame, bus.EdgeRequest(id): e.request,
	} {
		if _, err := e.bus.Subscribe(subject, 1<<20, handle); err != nil {
			tb.Fatal(err)
		}
	}
	known, stop := context.WithTimeout(tb.Context(), time.Minute)
	defer stop()
	if err := e.bus.Flush(known); err != nil {
		// the server knows of the subscriptions: who is asked from here on answers
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			e.digest()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	tb.Cleanup(func() {
		cancel()
		<-done
		_ = e.bus.Stop(context.Background())
	})
	return e
}

func (e *fakeEdge) publish(subject string, m proto.Message) {
	data, err := proto.Marshal(m)
	if err != nil {
		e.tb.Error(err)
		return
	}
	_ = e.bus.Publish(subject, data) // NATS may be away: that is part of some tests
}

func (e *fakeEdge) digest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mute {
		return
	}
	d := &meshv1.EdgeDigest{EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: e.version, Count: uint64(len(e.filters))}
	for f := range e.filters {
		d.Hash += xxhash.Sum64String(f)
	}
	e.publish(bus.EdgeDigest, d)
}

// want announces filters and waits until every router has applied them.
func (e *fakeEdge) want(filters ...string) {
	e.tb.Helper()
	e.mu.Lock()
	e.version++
	version := e.version
	for _, f := range filters {
		e.filters[f] = true
	}
	e.publish(bus.EdgeAnnounce, &meshv1.EdgeAnnounce{EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: version, Add: filters})
	e.mu.Unlock()
	eventually(e.tb, "interest applied", func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, r := range e.routers {
			if e.applied[r] < version {
				return fmt.Errorf("%s has applied %d of %d", r, e.applied[r], version)
			}
		}
		return nil
	})
}

func (e *fakeEdge) frame(data []byte, _ func([]byte) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.discard {
		return
	}
	var f meshv1.RouterFrame
	if err := proto.Unmarshal(data, &f); err != nil {
		e.tb.Errorf("frame: %v", err)
		return
	}
	if f.GetEdgeIncarnation() != e.incarnation || f.GetRouterId() == "" || f.GetRouterIncarnation() == 0 {
		e.tb.Errorf("frame of %q for incarnation %d, mine is %d", f.GetRouterId(), f.GetEdgeIncarnation(), e.incarnation)
	}
	last := e.last[f.GetRouterIncarnation()]
	carries := len(f.GetDeliveries())+len(f.GetCheckTopics()) > 0
	switch {
	case carries && f.GetN() <= last:
		e.tb.Errorf("batch %d after %d", f.GetN(), last)
	case carries && f.GetN() > last+1, !carries && f.GetN() > last:
		e.holes++
	}
	if !carries {
		e.beats++
	}
	e.last[f.GetRouterIncarnation()] = max(last, f.GetN())
	e.applied[f.GetRouterId()] = f.GetAppliedVersion()
	e.leaving, e.events = e.leaving || f.GetLeaving(), f.GetEvents()
	e.deliveries = append(e.deliveries, f.GetDeliveries()...)
	e.checks = append(e.checks, f.GetCheckTopics()...)
	if f.GetWantSnapshot() && !e.mute {
		e.snapshot(f.GetRouterId())
	}
}

// snapshot sends the interest in two parts. e.mu is held.
func (e *fakeEdge) snapshot(router string) {
	var filters []string
	for f := range e.filters {
		filters = append(filters, f)
	}
	half := len(filters) / 2
	for part, fs := range [][]string{filters[:half], filters[half:]} {
		e.publish(bus.RouterSnapshot(router), &meshv1.EdgeSnapshot{
			EdgeId: e.id, EdgeIncarnation: e.incarnation, Version: e.version, Part: uint32(part), Parts: 2, Filters: fs,
		})
	}
}

func (e *fakeEdge) request(data []byte, respond func([]byte) error) {
	var req meshv1.EdgeRequest
	if err := proto.Unmarshal(data, &req); err != nil {
		e.tb.Errorf("request: %v", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mute {
		return
	}
	if l := req.GetPresenceLease(); l != nil {
		if e.reporter != nil {
			e.reporter.Lease(time.Now(), l)
			e.report()
		}
		return
	}
	reply := &meshv1.EdgeReply{}
	if l := req.GetListMembers(); l != nil {
		if e.members == nil {
			return
		}
		reply.Members = &meshv1.MemberPage{}
		for _, m := range e.members[l.GetTopic()] {
			switch {
			case m.GetConnectionId() <= l.GetAfter():
			case len(reply.Members.Members) == int(l.GetLimit()):
				reply.Members.More = true
			default:
				reply.Members.Members = append(reply.Members.Members, m)
			}
		}
	}
	for _, t := range req.GetCount().GetTopics() {
		reply.Counts = append(reply.Counts, e.counts[t])
	}
	if d := req.GetDisconnect(); d != nil {
		e.disconnect = append(e.disconnect, d)
		reply.Disconnected = 2
	}
	if y := req.GetYield(); y != nil {
		e.yields = append(e.yields, y)
	}
	if p := req.GetProfile(); p != nil {
		e.profiles = append(e.profiles, p)
		reply.Profiled = 3
	}
	answer, err := proto.Marshal(reply)
	if err != nil {
		e.tb.Error(err)
	}
	_ = respond(answer)
}

// got waits until n deliveries of topic have come and returns all that came.
func (e *fakeEdge) got(topic string, n int) []*meshv1.Delivery {
	e.tb.Helper()
	var ds []*meshv1.Delivery
	eventually(e.tb, "deliveries of "+topic, func() error {
		ds = ds[:0]
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, d := range e.deliveries {
			if d.GetTopic() == topic {
				ds = append(ds, d)
			}
		}
		if len(ds) < n {
			return fmt.Errorf("%d of %d", len(ds), n)
		}
		return nil
	})
	return ds
}

func (e *fakeEdge) checked(topic string) {
	e.tb.Helper()
	eventually(e.tb, "check of "+topic, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !slices.Contains(e.checks, topic) {
			return errors.New("not told")
		}
		return nil
	})
}

func (e *fakeEdge) read(f func(*fakeEdge)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(e)
}

func decode(tb testing.TB, d *meshv1.Delivery) *wirev1.Message {
	tb.Helper()
	m := &wirev1.Message{}
	if err := proto.Unmarshal(d.GetBody(), m); err != nil {
		tb.Fatal(err)
	}
	return m
}

// ask hands client publishes to a router.
func (e *fakeEdge) ask(tb testing.TB, router string, req *meshv1.ClientPublish, reply *meshv1.ClientPublishReply) {
	tb.Helper()
	data, err := proto.Marshal(req)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	answer, err := e.bus.Request(ctx, bus.RouterPublish(router), data)
	if err != nil {
		tb.Fatal(err)
	}
	if err := proto.Unmarshal(answer, reply); err != nil {
		tb.Fatal(err)
	}
	if len(reply.GetResults()) != len(req.GetItems()) {
		tb.Fatalf("%d results for %d items", len(reply.GetResults()), len(req.GetItems()))
	}
}

func splitPort(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	return host, port, err
}

// tellsMembers makes the edge one that reports; it knows at once who is there.
func (e *fakeEdge) tellsMembers() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reporter = presence.NewReporter(presence.ReporterConfig{ID: e.id, Incarnation: e.incarnation, Loops: 1, MaxMembers: 1e6, MaxFilters: 10, MaxWatches: 10})
}

// change tells of members joining (or leaving) topic.
func (e *fakeEdge) change(topic string, kind presence.ChangeKind, ids ...uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []presence.Change
	for _, id := range ids {
		all = append(all, presence.Change{Kind: kind, Filter: topic, Walk: 1 << 60, Member: &presence.Member{ConnectionId: id, ClientId: fmt.Sprint("c", id)}})
	}
	e.reporter.Changes(0, all)
	e.report()
}

// report sends what there is. e.mu is held.
func (e *fakeEdge) report() {
	for range 2 {
		for e.reporter.Working() {
			e.reporter.Step()
		}
		e.reporter.Advance(time.Now())
		frames, commands := e.reporter.Take()
		for _, f := range frames {
			e.publish(bus.RouterPresence(f.Router), f.Frame)
		}
		for _, c := range commands {
			if c.Walk > 0 {
				e.reporter.Changes(0, []presence.Change{{Kind: presence.Walked, Filter: c.Filter, Walk: c.Walk}})
			}
		}
	}
}

package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	presenceCrowd = 15_000 // connections
	presenceHeld  = 1_000_000
	presenceTopic = "crew/all"
	heldTopic     = "crew/held"
	presenceMoves = 500 // joins, leaves, and calls of Count
)

// presence watches a topic with many members, real ones and then as many as a watch may have, and
// looks at memory, and at when the caller hears of a join.
func (b *bench) presence(ctx context.Context) (err error) {
	defer try.Catch(&err)
	programs := b.Programs
	programs.RouterArgs = []string{"--presence-members", strconv.Itoa(presenceHeld + presenceCrowd)}
	m := try.Get(b.Dir.StartMesh(ctx, programs, 1))
	defer m.Stop()
	conn := try.Get(suite.Dial(m.Router.Addr))
	defer func() { _ = conn.Close() }()
	try.Get(pushmeshv1.NewNamespaceServiceClient(conn).Put(ctx, &pushmeshv1.NamespaceServicePutRequest{
		Namespace: &pushmeshv1.Namespace{Prefix: "crew", Policy: &pushmeshv1.Policy{Presence: true}},
	}))
	api := pushmeshv1.NewPresenceServiceClient(conn)
	return errors.Join(b.crowd(ctx, m, api), b.held(ctx, m, api))
}

// crowd is real connections.
func (b *bench) crowd(ctx context.Context, m *local.Mesh, api pushmeshv1.PresenceServiceClient) (err error) {
	defer try.Catch(&err)
	s := try.Get(swarm.Dial(ctx, swarm.Config{
		Addr: m.Edges[0].Addr, Conns: presenceCrowd, Dialect: swarm.Subscribe(presenceTopic),
	}))
	defer func() { _ = s.Close() }()
	counts := make([]float64, presenceMoves)
	for i := range counts {
		began := time.Now()
		resp := try.Get(api.Count(ctx, &pushmeshv1.CountRequest{Topics: []string{presenceTopic}}))
		if resp.GetCounts()[0] != presenceCrowd || resp.GetSilentEdges() > 0 {
			return fmt.Errorf("counted %v", resp)
		}
		counts[i] = float64(time.Since(began)) / 1e6
	}
	b.Add(spread(fmt.Sprintf("Count of a topic with %d members, p99", presenceCrowd), counts))
	w := try.Get(b.watch(ctx, api, "15,000 connections", presenceTopic, presenceCrowd, m.Edges[0], m.Router))
	defer w.cancel()
	joins, leaves := try.Get2(w.moves(ctx, m.Edges[0].Addr))
	b.Add(spread("a join at an edge until the caller of Watch has it, p99", joins), spread("a leave, likewise, p99", leaves))
	return nil
}

// held is members of an edge that has no connections.
func (b *bench) held(ctx context.Context, m *local.Mesh, api pushmeshv1.PresenceServiceClient) (err error) {
	defer try.Catch(&err)
	p := try.Get(b.hold(m, "held", "", 0, 0, "-crowd", heldTopic, "-members", strconv.Itoa(presenceHeld)))
	defer func() { _ = p.Dismiss() }()
	w, err := b.watch(ctx, api, "1,000,000 members of an edge without connections", heldTopic, presenceHeld, p.Process, m.Router)
	if err == nil {
		w.cancel()
	}
	return err
}

// spread is a row of the p99 of times in ms.
func spread(name string, ms []float64) table.Row {
	return table.Figure(name, table.At(ms, .99), "ms", fmt.Sprintf("p50 %.2f, max %.2f ms, of %d, one after the other", table.At(ms, .5), table.At(ms, 1), len(ms)))
}

// watcher is a caller of Watch.
type watcher struct {
	stream pushmeshv1.PresenceService_WatchClient
	cancel context.CancelFunc
}

// watch watches a topic, and adds what its snapshot took, in time and in memory.
func (b *bench) watch(ctx context.Context, api pushmeshv1.PresenceServiceClient, who, topic string, members int, edge, router *local.Process) (_ *watcher, err error) {
	defer try.Catch(&err)
	ps := []*local.Process{router, edge}
	before := try.Get(heaps(ctx, ps))
	watching, cancel := context.WithCancel(ctx)
	w := &watcher{cancel: cancel}
	began := time.Now()
	w.stream, err = api.Watch(watching, &pushmeshv1.PresenceServiceWatchRequest{Filter: topic})
	n := 0
	for last := false; err == nil && !last; {
		var resp *pushmeshv1.PresenceServiceWatchResponse
		if resp, err = w.stream.Recv(); err == nil {
			n += len(resp.GetSnapshot().GetMembers())
			if last = resp.GetSnapshot().GetLast(); last && (n != members || resp.GetSnapshot().GetSilentEdges() > 0) {
				err = fmt.Errorf("a snapshot of %d members, %d edges are silent", n, resp.GetSnapshot().GetSilentEdges())
			}
		}
	}
	took := time.Since(began)
	if err != nil {
		cancel()
		return nil, err
	}
	b.Add(table.Figure("snapshot of a Watch, "+who, took.Seconds()*1000, "ms", fmt.Sprintf("from the call until the last member; %.3g members/s", float64(n)/took.Seconds())))
	after, err := heaps(ctx, ps)
	for i, where := range []string{"router", "edge"} {
		if err == nil && after[i] > 0 {
			b.Add(table.Figure("memory of a watched member at the "+where+", "+who, (after[i]-before[i])/float64(n), "B", "live heap, with the Watch less without"))
		}
	}
	if err != nil {
		cancel()
	}
	return w, err
}

// heaps are the live heaps of processes in bytes, after a collection; 0 of one that serves no HTTP.
func heaps(ctx context.Context, ps []*local.Process) (all []float64, err error) {
	defer try.Catch(&err)
	for _, p := range ps {
		if p.HTTP == "" {
			all = append(all, 0)
			continue
		}
		text := try.Get(p.Get(ctx, "/debug/pprof/heap?gc=1&debug=1"))
		_, rest, _ := strings.Cut(string(text), "# HeapAlloc = ")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: its heap: %w", p.Name, err)
		}
		all = append(all, n)
	}
	return all, nil
}

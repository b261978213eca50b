package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	webConnects    = 4000
	webSubscribers = 1000
	// webIdle connections are what a server's memory grows by, once webFirst have brought into
	// memory what it has once: its code, and the room of its garbage collector.
	webFirst, webIdle = 2000, 15000
	webSize           = 128 // bytes of payload
)

// NewWebSocket is the suite of what WebSocket costs an edge, beside native connections in the same
// run.
func NewWebSocket(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	from := ""
	return &suite.Suite{
		Rounds: 5, Timeout: 9*time.Minute + 30*time.Second,
		Flags: func(f *flag.FlagSet) {
			f.StringVar(&from, "from", "", "the pushmesh binary of a release that knew no WebSocket; \"\": nothing is measured beside it")
		},
		Parts: func() []suite.Part {
			return []suite.Part{
				{Name: "before", Run: func(ctx context.Context) error { return b.webBefore(ctx, from) }},
				{Name: "connect", Run: b.webConnect},
				{Name: "idle", Run: b.webIdle},
				{Name: "deliver", Run: func(ctx context.Context) error { return b.webDeliver(ctx, false) }},
				{Name: "deliver-tls", Run: func(ctx context.Context) error { return b.webDeliver(ctx, true) }},
			}
		},
	}
}

// dialer opens a connection to an edge.
type dialer func(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error)

// ways are native connections, and WebSockets.
var ways = []struct {
	name string
	dial dialer
}{{"native", dial}, {"WebSocket", dialWeb}}

// webConnect has clients come, subscribe and go, in turns.
func (b *bench) webConnect(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdge(ctx))
	defer e.Stop()
	rates := map[string][]float64{}
	for range b.Rounds {
		for _, w := range ways {
			before := try.Get(procfs.CPU(e.pid))
			try.Do(suite.Each(webConnects, atATime, func(_, _ int) (err error) {
				defer try.Catch(&err)
				conn := try.Get(w.dial(ctx, e.Edges[0].Addr, nil))
				try.Get(greet(conn, "bench/none"))
				return conn.Close()
			}))
			after := try.Get(procfs.CPU(e.pid))
			rates[w.name] = append(rates[w.name], webConnects/(after-before).Seconds())
		}
	}
	ratios := table.Ratios(rates["WebSocket"], rates["native"])
	b.Add(table.AtLeast("WebSocket: connects, Hello and Subscribe, per second of one core, by native ones", table.Median(ratios), "×", 0.8,
		fmt.Sprintf("%.0f/s, native %.0f, ratios %.2f", table.Median(rates["WebSocket"]), table.Median(rates["native"]), ratios)))
	return nil
}

// webIdle has connections idle in an edge of their own.
func (b *bench) webIdle(ctx context.Context) (err error) {
	defer try.Catch(&err)
	each := map[string]float64{}
	for _, secure := range []bool{false, true} {
		for _, w := range ways {
			each[fmt.Sprint(w.name, secure)] = try.Get(b.idleOf(ctx, w.dial, secure))
		}
		name, goal := "WebSocket: RSS per idle connection, by native ones", 1.1
		if secure {
			name = "WebSocket over TLS: RSS per idle connection, by native TLS"
		}
		web, native := each[fmt.Sprint("WebSocket", secure)], each[fmt.Sprint("native", secure)]
		b.Add(table.AtMost(name, web/native, "×", goal, fmt.Sprintf("%.0f B, native %.0f, %d connections more, one subscription each", web, native, webIdle)))
	}
	peer := try.Get(b.startCentrifugo(ctx))
	if peer == nil {
		return nil
	}
	defer local.Stop(peer.Process)
	theirs, err := peer.idle(ctx)
	web := each[fmt.Sprint("WebSocket", false)]
	b.Add(table.Figure("Centrifugo: RSS per idle connection, by WebSocket here", theirs/web, "×", fmt.Sprintf("%.0f B, here %.0f, %d connections more, one subscription each", theirs, web, webIdle)))
	return err
}

func (b *bench) idleOf(ctx context.Context, open dialer, secure bool) (_ float64, err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdge(ctx))
	defer e.Stop()
	cfg := e.cfg
	if !secure {
		cfg = nil
	}
	return growth(e.pid, func(n int) (*crowd, error) {
		return gather(n, func() (net.Conn, error) { return open(ctx, e.Edges[0].Addr, cfg) }, "bench/idle")
	})
}

// growth is a server's memory for each connection that is idle.
func growth(pid int, gather func(n int) (*crowd, error)) (_ float64, err error) {
	defer try.Catch(&err)
	var rss [2]int64
	for i, n := range []int{webFirst, webIdle} {
		c := try.Get(gather(n))
		defer c.close()
		time.Sleep(tlsHold)
		rss[i] = try.Get(procfs.RSS(pid))
	}
	return float64(rss[1]-rss[0]) / webIdle, nil
}

// webBefore has native subscribers of an edge of before get what those of an edge of now get, in
// turns.
func (b *bench) webBefore(ctx context.Context, from string) (err error) {
	defer try.Catch(&err)
	if from == "" {
		return nil
	}
	programs := b.Programs
	programs.EdgesFrom = from
	m := try.Get(b.Dir.StartMesh(ctx, programs, 2))
	defer m.Stop()
	try.Do(replace(ctx, m.Edges[1], filepath.Join(b.Programs.Bin, "edge"), true))
	var crowds [2]*crowd
	var sources [2]source
	for i, e := range m.Edges {
		topic := fmt.Sprint("bench/edge", i)
		c := try.Get(gather(webSubscribers, func() (net.Conn, error) { return dial(ctx, e.Addr, nil) }, topic))
		defer c.close()
		src := try.Get(publisher.New(ctx, m.Router.Addr, topic, webSize))
		defer func() { err = errors.Join(err, src.Close()) }()
		crowds[i], sources[i] = c, src
	}
	for _, window := range []int{1, 64} {
		var cost [2][]float64
		for round := range b.Rounds * 2 {
			for turn := range m.Edges {
				i := (turn + round) % 2 // neither is always first
				cost[i] = append(cost[i], try.Get(b.pump(ctx, m.Edges[i].PID(), crowds[i], sources[i], window)))
			}
		}
		ratios := table.Ratios(cost[1], cost[0])
		b.Add(table.AtMost(fmt.Sprintf("native: CPU per delivery by a release without WebSocket, %d subscribers, %d B, window %d", webSubscribers, webSize, window), table.Median(ratios), "×", 1.02,
			fmt.Sprintf("%.3f µs, before %.3f, ratios %.2f", table.Median(cost[1]), table.Median(cost[0]), ratios)))
	}
	return nil
}

// webDeliver has as many WebSockets as native subscribers get the same, in turns.
func (b *bench) webDeliver(ctx context.Context, secure bool) (err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdge(ctx))
	defer e.Stop()
	cfg, over := e.cfg, " over TLS"
	if !secure {
		cfg, over = nil, ""
	}
	type side struct {
		name string
		pid  int
		c    *crowd
		src  source
	}
	var sides []side
	cost := map[string]map[int][]float64{}
	for _, w := range ways {
		c := try.Get(gather(webSubscribers, func() (net.Conn, error) { return w.dial(ctx, e.Edges[0].Addr, cfg) }, "bench/"+w.name))
		defer c.close()
		src := try.Get(publisher.New(ctx, e.Router.Addr, "bench/"+w.name, webSize))
		defer func() { err = errors.Join(err, src.Close()) }()
		sides, cost[w.name] = append(sides, side{w.name, e.pid, c, src}), map[int][]float64{}
	}
	var peer *centrifugo
	if !secure {
		peer = try.Get(b.startCentrifugo(ctx))
	}
	if peer != nil {
		defer local.Stop(peer.Process)
		c := try.Get(peer.gather(ctx, webSubscribers))
		defer c.close()
		sides, cost["Centrifugo"] = append(sides, side{"Centrifugo", peer.PID(), c, peer}), map[int][]float64{}
	}
	windows := []int{1, 64}
	for round := range b.Rounds {
		for _, window := range windows {
			for _, s := range sides {
				done := b.Profiles(ctx, fmt.Sprintf("websocket%s.%s.%d.%d", over, s.name, window, round), 1, e.Edges[0])
				each, err := b.pump(ctx, s.pid, s.c, s.src, window)
				if err = errors.Join(err, done()); err != nil {
					return fmt.Errorf("%s, window %d: %w", s.name, window, err)
				}
				cost[s.name][window] = append(cost[s.name][window], each)
			}
		}
	}
	for _, window := range windows {
		web, native := cost["WebSocket"][window], cost["native"][window]
		ratios := table.Ratios(web, native)
		b.Add(table.AtMost(fmt.Sprintf("WebSocket%s: CPU per delivery by native%s, %d subscribers, %d B, window %d", over, over, webSubscribers, webSize, window), table.Median(ratios), "×", 1.1,
			fmt.Sprintf("%.3f µs, native %.3f, ratios %.2f", table.Median(web), table.Median(native), ratios)))
		if theirs := cost["Centrifugo"][window]; len(theirs) > 0 {
			ratios := table.Ratios(theirs, web)
			b.Add(table.Figure(fmt.Sprintf("Centrifugo: CPU per delivery by WebSocket here, %d subscribers, %d B, window %d", webSubscribers, webSize, window), table.Median(ratios), "×",
				fmt.Sprintf("%.3f µs, here %.3f, ratios %.2f; theirs includes one publish for %d deliveries", table.Median(theirs), table.Median(web), ratios, webSubscribers)))
		}
	}
	return nil
}

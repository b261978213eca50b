package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
	webSize        = 128 // bytes of payload
)

// NewWebSocket is the suite of what WebSocket costs an edge, beside native connections in the same
// run.
func NewWebSocket(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Rounds: 5, Timeout: 9*time.Minute + 30*time.Second,
		Parts: func() []suite.Part {
			return []suite.Part{
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
		b.Add(table.AtMost(name, web/native, "×", goal, fmt.Sprintf("%.0f B, native %.0f, %d connections, one subscription each", web, native, tlsIdle)))
	}
	peer := try.Get(b.startCentrifugo(ctx))
	if peer == nil {
		return nil
	}
	defer local.Stop(peer.Process)
	theirs, err := peer.idle(ctx)
	web := each[fmt.Sprint("WebSocket", false)]
	b.Add(table.Figure("Centrifugo: RSS per idle connection, by WebSocket here", theirs/web, "×", fmt.Sprintf("%.0f B, here %.0f, %d connections, one subscription each", theirs, web, tlsIdle)))
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
	before := try.Get(procfs.RSS(e.pid))
	c := try.Get(gather(tlsIdle, func() (net.Conn, error) { return open(ctx, e.Edges[0].Addr, cfg) }, "bench/idle"))
	defer c.close()
	time.Sleep(tlsHold)
	after, err := procfs.RSS(e.pid)
	return float64(after-before) / tlsIdle, err
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

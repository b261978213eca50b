package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushmesh/pushmesh/test/load/flow"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	floodConns   = 1000 // subscribers without TLS
	floodRate    = 20   // broadcasts in a second
	floodDialers = 32
)

// tlsFlood measures deliveries at one edge while handshakes flood it, in turns with a flood of
// another edge on the same machine, which takes as much CPU of it, and with none.
func (b *bench) tlsFlood(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdges(ctx, 2))
	defer e.Stop()
	hello := try.Get(firstRecord(e.cfg))
	live := try.Get(flow.Broadcast(ctx, e.Router.Addr, e.Edges[0].Addr, "room/guard/tls", floodConns, floodRate))
	defer func() { err = errors.Join(err, live.Swarm.Close()) }()
	p99 := map[string][]float64{}
	var each []float64
	for range b.Rounds {
		for _, x := range []struct {
			name string
			at   *local.Process
		}{{"none", nil}, {"elsewhere", e.Edges[1]}, {"here", e.Edges[0]}} {
			stop := func() float64 { return 0 }
			if x.at != nil {
				stop = floodTLS(ctx, x.at.Addr, hello)
			}
			p, _, err := tail(ctx, live, b.Span)
			rate := stop()
			if err != nil {
				return err
			}
			if p99[x.name] = append(p99[x.name], p); x.name == "here" {
				each = append(each, rate)
			}
		}
	}
	b.Add(table.AtMost(fmt.Sprintf("p99 of %d subscribers while TLS handshakes flood their edge", floodConns), table.Median(p99["here"])/table.Median(p99["elsewhere"]), "× a flood elsewhere", 2,
		fmt.Sprintf("p99 ms %.3g, elsewhere %.3g, none %.3g; %.0f handshakes/s begun", p99["here"], p99["elsewhere"], p99["none"], each)))
	return nil
}

// firstRecord is the ClientHello of a client.
func firstRecord(cfg *tls.Config) ([]byte, error) {
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	cfg = cfg.Clone()
	cfg.ServerName = "127.0.0.1"
	go func() { _ = tls.Client(theirs, cfg).Handshake() }()
	b := make([]byte, 64<<10)
	n, err := ours.Read(b)
	return b[:n], err
}

// floodTLS has clients send the same ClientHello again and again, which costs them nothing, and
// leave once the edge has answered: it has computed all it has to by then. stop ends it, and says
// how many it answered in a second.
func floodTLS(ctx context.Context, addr string, hello []byte) (stop func() float64) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var answered atomic.Int64
	began := time.Now()
	for range floodDialers {
		all.Go(func() {
			b := make([]byte, 4<<10)
			for ctx.Err() == nil {
				conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				if err != nil {
					continue
				}
				_ = conn.(*net.TCPConn).SetLinger(0) // no TIME_WAIT: ports are few
				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err = conn.Write(hello); err == nil {
					if _, err = conn.Read(b); err == nil {
						answered.Add(1)
					}
				}
				_ = conn.Close()
			}
		})
	}
	return func() float64 {
		cancel()
		all.Wait()
		return float64(answered.Load()) / time.Since(began).Seconds()
	}
}

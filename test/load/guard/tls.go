package guard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/testca"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	tlsHandshakes  = 2000 // of each kind
	tlsIdle        = 5000 // connections
	tlsSubscribers = 1000
	tlsSize        = 128 // bytes of payload
	// tlsHold is how long connections idle before memory is looked at.
	tlsHold = 8 * time.Second
)

// secureEdge is a mesh whose edge takes TLS.
type secureEdge struct {
	*local.Mesh
	pid int
	cfg *tls.Config // of its clients
}

func (b *bench) secureEdge(ctx context.Context) (*secureEdge, error) { return b.secureEdges(ctx, 1) }

// secureEdges is a mesh of so many; pid is the first one's.
func (b *bench) secureEdges(ctx context.Context, n int) (_ *secureEdge, err error) {
	defer try.Catch(&err)
	ca := try.Get(testca.New())
	cert, key := try.Get2(ca.Write(string(b.Dir), "edge", "127.0.0.1"))
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, n, "--tls-cert", cert, "--tls-key", key))
	return &secureEdge{m, m.Edges[0].PID(), &tls.Config{RootCAs: ca.Pool()}}, nil
}

// tls measures what TLS costs an edge: in handshakes, in memory of connections that idle, and in
// CPU for a delivery, beside the same without.
func (b *bench) tls(ctx context.Context) error {
	return errors.Join(b.shake(ctx), b.idle(ctx))
}

// shake opens connections and closes them once hands are shaken.
func (b *bench) shake(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdge(ctx))
	defer e.Stop()
	resumed := e.cfg.Clone()
	resumed.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	first := try.Get(dial(ctx, e.Edges[0].Addr, resumed))
	try.Get(greet(first, "bench/none")) // reads the ticket
	defer func() { _ = first.Close() }()
	plain := try.Get(b.perCore(ctx, e, nil, false))
	old := e.cfg.Clone()
	old.MaxVersion = tls.VersionTLS12
	for _, x := range []struct {
		name   string
		cfg    *tls.Config
		resume bool
	}{
		{"full, TLS 1.3, ECDSA P-256", e.cfg, false},
		{"full, TLS 1.2, ECDSA P-256", old, false},
		{"resumed, TLS 1.3", resumed, true},
		{"full, TLS 1.3, without ML-KEM", classic(e.cfg), false},
		{"resumed, TLS 1.3, without ML-KEM", classic(resumed), true},
	} {
		rate := try.Get(b.perCore(ctx, e, x.cfg, x.resume))
		b.Add(table.Figure("TLS handshakes per second of one core, "+x.name, rate, "1/s", fmt.Sprintf("%s, connections without TLS %.0f", opensslSpeed(ctx), plain)))
	}
	return nil
}

// classic is cfg for a client that agrees on keys by X25519 alone.
func classic(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	cfg.CurvePreferences = []tls.CurveID{tls.X25519}
	return cfg
}

// perCore is connections made and ended in a second of the edge's CPU.
func (b *bench) perCore(ctx context.Context, e *secureEdge, cfg *tls.Config, resume bool) (_ float64, err error) {
	defer try.Catch(&err)
	before := try.Get(procfs.CPU(e.pid))
	err = suite.Each(tlsHandshakes, atATime, func(_, _ int) error {
		conn, err := dial(ctx, e.Edges[0].Addr, cfg)
		if err != nil {
			return err
		}
		if secure, is := conn.(*tls.Conn); is && secure.ConnectionState().DidResume != resume {
			err = fmt.Errorf("resumed is %v", !resume)
		}
		return errors.Join(err, conn.Close())
	})
	after, errAfter := procfs.CPU(e.pid)
	return float64(tlsHandshakes) / (after - before).Seconds(), errors.Join(err, errAfter)
}

// opensslSpeed is what OpenSSL signs in a second of one core: a full handshake signs once.
func opensslSpeed(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "openssl", "speed", "-seconds", "1", "ecdsap256").Output()
	if err != nil {
		return "openssl not installed"
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.Contains(line, "nistp256") {
			return "openssl signs " + fields[len(fields)-2]
		}
	}
	return "openssl says nothing of P-256"
}

// idle has connections idle in an edge of their own.
func (b *bench) idle(ctx context.Context) (err error) {
	defer try.Catch(&err)
	perConn := func(secure bool) (_ float64, err error) {
		defer try.Catch(&err)
		e := try.Get(b.secureEdge(ctx))
		defer e.Stop()
		cfg := e.cfg
		if !secure {
			cfg = nil
		}
		before := try.Get(procfs.RSS(e.pid))
		c := try.Get(connect(ctx, e.Edges[0].Addr, tlsIdle, cfg, "bench/idle"))
		defer c.close()
		time.Sleep(tlsHold)
		after, err := procfs.RSS(e.pid)
		return float64(after-before) / float64(tlsIdle), err
	}
	plain := try.Get(perConn(false))
	secure, err := perConn(true)
	if err == nil {
		b.Add(table.AtMost(fmt.Sprintf("RSS per idle TLS connection, %d connections, one subscription", tlsIdle), secure, "B", 12<<10, fmt.Sprintf("without TLS %.0f", plain)))
	}
	return err
}

// deliver has as many subscribers with TLS as without get the same, in turns.
func (b *bench) deliver(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e := try.Get(b.secureEdge(ctx))
	defer e.Stop()
	cost := map[string]map[int][]float64{}
	type side struct {
		name string
		c    *crowd
		src  *publisher.Publisher
	}
	var sides []side
	for name, cfg := range map[string]*tls.Config{"plain": nil, "tls": e.cfg} {
		c := try.Get(connect(ctx, e.Edges[0].Addr, tlsSubscribers, cfg, "bench/"+name))
		defer c.close()
		src := try.Get(publisher.New(ctx, e.Router.Addr, "bench/"+name, tlsSize))
		defer func() { err = errors.Join(err, src.Close()) }()
		sides, cost[name] = append(sides, side{name, c, src}), map[int][]float64{}
	}
	windows := []int{1, 64}
	for round := range b.Rounds {
		for _, window := range windows {
			for _, s := range sides {
				done := b.Profiles(ctx, fmt.Sprintf("tls-deliver.%s.%d.%d", s.name, window, round), 1, e.Edges[0])
				each, err := b.pump(ctx, e.pid, s.c, s.src, window)
				if err = errors.Join(err, done()); err != nil {
					return fmt.Errorf("%s, window %d: %w", s.name, window, err)
				}
				cost[s.name][window] = append(cost[s.name][window], each)
			}
		}
	}
	for _, window := range windows {
		ratios := table.Ratios(cost["tls"][window], cost["plain"][window])
		b.Add(table.AtMost(
			fmt.Sprintf("CPU per delivery with TLS by that without, %d subscribers, %d B, window %d", tlsSubscribers, tlsSize, window), table.Median(ratios), "×", 1.5,
			fmt.Sprintf("%.3f µs, without %.3f, ratios %.2f", table.Median(cost["tls"][window]), table.Median(cost["plain"][window]), ratios),
		))
	}
	return nil
}

// source publishes n messages.
type source interface{ Publish(n int) error }

// pump has so many messages in flight for a while, and says what a delivery cost the edge, in µs.
func (b *bench) pump(ctx context.Context, pid int, c *crowd, src source, window int) (_ float64, err error) {
	defer try.Catch(&err)
	before := try.Get(procfs.CPU(pid))
	sent := 0
	for began := time.Now(); time.Since(began) < time.Second; sent += window {
		c.want(window)
		try.Do(src.Publish(window))
		try.Do(c.await(ctx))
	}
	after, err := procfs.CPU(pid)
	return (after - before).Seconds() * 1e6 / float64(sent*len(c.conns)), err
}

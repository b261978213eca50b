// Command edgestall is an edge that ranks on its own event loops, as no edge should: benchmarks
// show with it what the compute tier is for. Its loops and its mesh are those of an edge with
// default settings, without what else an edge has. It says "ready" and its address once it serves,
// and ends with its standard input, of which each line is an order:
//
//	on     a ranking of -work every second, on one loop after the other; answered by "ok"
//	off    no more of them; answered by "ok"
//	lag    p99 and max of the last 100 samples of the worst loop, in ms
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/claimclient"
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/services/edge/internal/claims/handover"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/ranking"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream"
)

func main() {
	debug.SetGCPercent(50) // as cmd/edge
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "edgestall:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	f := flag.NewFlagSet("edgestall", flag.ContinueOnError)
	id := f.String("id", "edgestall", "of the edge")
	url := f.String("nats", "nats://127.0.0.1:4222", "servers")
	stores := f.String("stores", "127.0.0.1:7403", "stores")
	work := f.Duration("work", 200*time.Millisecond, "of a ranking")
	if err := f.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	parts, loops, err := assemble(*id, *url, strings.Split(*stores, ","), log)
	if err != nil {
		return err
	}
	if err := parts.Start(ctx); err != nil {
		return err
	}
	s := &stall{loops: loops, work: *work}
	defer func() { s.off(); err = errors.Join(err, parts.Stop(ctx)) }()
	if _, err := fmt.Fprintln(out, "ready", loops[0].Addr()); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if err := s.order(lines.Text(), out); err != nil {
			return err
		}
	}
	return nil
}

// asked is what loops ask.
type asked struct {
	*upstream.Mesh
	exchange.Ranks
	exchange.Claims
}

// assemble puts together what delivers.
func assemble(id, url string, stores []string, log *slog.Logger) (*lifecycle.Stack, []*loop.Loop, error) {
	belongs := meshid.New("")
	conn := bus.New(bus.Config{URL: url, Name: id, Mesh: belongs, Log: log})
	client := storeclient.New(storeclient.Config{Seeds: stores, Mesh: belongs, Log: log})
	policies := policy.NewWatch(client, conn, bus.Node("edge", id), log)
	began := incarnation.New()
	m := upstream.New(upstream.Config{
		ID: id, Incarnation: began, Bus: conn, Store: client, Log: log, Tracer: noop.NewTracerProvider().Tracer(""),
		Durable:     func(topic string) bool { return policies.Table().For(topic).Durable },
		DurableAny:  func(filter string) bool { return policies.Table().AnyDurable(filter) },
		MaxAttempts: func(topic string) uint32 { return policies.Table().For(topic).MaxAttempts }, Connections: func() int { return 0 },
	})
	ranks := ranking.New(ranking.Config{Post: m.Post, Log: log, Registry: prometheus.NewRegistry()})
	places := handover.New(m.Post)
	claimers := claimclient.New(claimclient.Config{
		Node: "edge:" + id, Incarnation: began, Stores: client, Tell: places.Tell, Log: log, Tier: "edge", Registry: prometheus.NewRegistry(),
	})
	places.Use(claimers)
	loops, err := loop.NewAll(loop.Config{
		EdgeID: id, Mesh: asked{m, ranks, places}, ListenAddr: "127.0.0.1:0",
		PolicyFor: func(topic string) *policy.Policy { return policies.Table().For(topic) }, Unknown: func() *code.Error { return policies.Table().Known() },
	}, runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, nil, err
	}
	seen := make([]exchange.Loop, len(loops))
	for i, l := range loops {
		seen[i] = l
	}
	m.SetLoops(seen)
	parts := &lifecycle.Stack{}
	parts.Add("nats", conn)
	parts.Add("store client", client)
	parts.Add("policies", policies)
	parts.Add("mesh", m)
	parts.Add("ranker", ranks)
	parts.Add("claims client", claimers)
	parts.Add("claims", places)
	for i, l := range loops {
		parts.Add(fmt.Sprintf("loop %d", i), l)
	}
	return parts, loops, nil
}

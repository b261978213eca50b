// Command edgehold is an edge without connections that wants topics all the same, user/FROM/inbox to user/TO-1/inbox: benchmarks
// have routers learn them. It says "ready" once they are announced, and ends with its standard input.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/mesh"
)

// atATime is how many joins are not answered yet at most.
const atATime = 100_000

// loop takes the answers to joins.
type loop chan struct{}

func (l loop) Post(e exchange.Event) bool {
	if _, ok := e.(exchange.Joined); ok {
		<-l
	}
	return true
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "edgehold:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("edgehold", flag.ContinueOnError)
	id := f.String("id", "edgehold", "of the edge")
	url := f.String("nats", "nats://127.0.0.1:4222", "servers")
	stores := f.String("stores", "127.0.0.1:9400", "stores")
	from, to := f.Int("from", 0, "first topic"), f.Int("to", 0, "behind the last topic")
	if err := f.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	conn := bus.New(bus.Config{URL: *url, Name: *id, Log: log})
	client := storeclient.New(storeclient.Config{Seeds: strings.Split(*stores, ","), Log: log})
	no := func(string) bool { return false }
	m := mesh.New(mesh.Config{
		ID: *id, Incarnation: uint64(time.Now().UnixMicro()), Bus: conn, Store: client, Durable: no, DurableAny: no,
		MaxAttempts: func(string) uint32 { return 1 }, Connections: func() int { return 0 },
		Log: log, Tracer: noop.NewTracerProvider().Tracer(""),
	})
	waiting := make(loop, atATime)
	m.SetLoops([]exchange.Loop{waiting})
	var parts lifecycle.Stack
	parts.Add("bus", conn)
	parts.Add("stores", client)
	parts.Add("mesh", m)
	if err := parts.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	for n := *from; n < *to; n++ {
		waiting <- struct{}{}
		m.Join(exchange.Conn{}, 0, "user/"+strconv.Itoa(n)+"/inbox", false, 1)
	}
	for range atATime { // everything was answered
		waiting <- struct{}{}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

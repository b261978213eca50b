package upstream_test

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
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/incarnation"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/presence"
	"github.com/pushmesh/pushmesh/internal/storeclient"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream"
)

// TestMain is that of tests, and with "hold" as the first argument a program of benchmarks: an edge
// without connections that wants topics all the same, such as user/FROM/inbox to user/TO-1/inbox,
// so that routers learn them, and send to it. With -crowd it has members of a topic, too, for
// whoever watches that. It says "ready" once all is announced, and ends with its standard input.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "hold" {
		os.Exit(m.Run())
	}
	if err := hold(context.Background(), os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "hold:", err)
		os.Exit(1)
	}
}

// atATime is how many joins are not answered yet at most.
const atATime = 100_000

// holder takes the answers to joins, and tells of members who never were.
type holder struct {
	joins   chan struct{}
	mesh    *upstream.Mesh
	crowd   string // their topic
	members int
}

func (l *holder) Post(e exchange.Event) bool {
	switch e := e.(type) {
	case exchange.Joined:
		<-l.joins
	case exchange.WatchMembers:
		if e.Walk > 0 && e.Filter == l.crowd {
			go l.tell(e) // it is the mesh that asks, and that takes them in
		}
	}
	return true
}

// tell names everybody, as a loop with that many connections does.
func (l *holder) tell(e exchange.WatchMembers) {
	const atOnce = 64
	now := uint32(time.Now().Unix())
	for n := 0; n < l.members; n += atOnce {
		changes := make([]presence.Change, 0, atOnce)
		for i := n; i < min(n+atOnce, l.members); i++ {
			changes = append(changes, presence.Change{Kind: presence.Joined, Filter: e.Filter, Walk: e.Walk, Member: &presence.Member{
				ConnectionId: uint64(i + 1), ClientId: "held-" + strconv.Itoa(i), ConnectedAt: now, SubscribedAt: now,
			}})
		}
		l.mesh.TellMembers(0, changes)
	}
	l.mesh.TellMembers(0, []presence.Change{{Kind: presence.Walked, Filter: e.Filter, Walk: e.Walk}})
}

func hold(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("hold", flag.ContinueOnError)
	id := f.String("id", "hold", "of the edge")
	url := f.String("nats", "nats://127.0.0.1:4222", "servers")
	stores := f.String("stores", "127.0.0.1:9400", "stores")
	pattern := f.String("topics", "user/%d/inbox", "names of the topics, with a number for %d")
	from, to := f.Int("from", 0, "first topic"), f.Int("to", 0, "behind the last topic")
	crowd, members := f.String("crowd", "", "topic that -members are subscribed to"), f.Int("members", 0, "of the crowd; routers must take as many")
	if err := f.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	belongs := meshid.New("")
	conn := bus.New(bus.Config{URL: *url, Name: *id, Mesh: belongs, Log: log})
	client := storeclient.New(storeclient.Config{Seeds: strings.Split(*stores, ","), Mesh: belongs, Log: log})
	no := func(string) bool { return false }
	m := upstream.New(upstream.Config{
		ID: *id, Incarnation: incarnation.New(), Bus: conn, Store: client, Durable: no, DurableAny: no,
		MaxAttempts: func(string) uint32 { return 1 }, Connections: func() int { return 0 }, PresenceMembers: max(*members, 1),
		Log: log, Tracer: noop.NewTracerProvider().Tracer(""),
	})
	waiting := make(chan struct{}, atATime)
	m.SetLoops([]exchange.Loop{&holder{joins: waiting, mesh: m, crowd: *crowd, members: *members}})
	var parts lifecycle.Stack
	parts.Add("bus", conn)
	parts.Add("stores", client)
	parts.Add("mesh", m)
	if err := parts.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Stop(ctx)) }()
	before, behind, _ := strings.Cut(*pattern, "%d")
	for n := *from; n < *to; n++ {
		waiting <- struct{}{}
		m.Join(exchange.Conn{}, 0, before+strconv.Itoa(n)+behind, false, 1)
	}
	if *crowd != "" {
		waiting <- struct{}{}
		m.Join(exchange.Conn{}, 0, *crowd, false, 1)
	}
	for range atATime { // everything was answered
		waiting <- struct{}{}
	}
	fmt.Println(`"ready"`)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

package edge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/swarm"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

const (
	// gcFew is the number of connections that many are compared with; gcSubs of either get
	// messages, the others idle.
	gcFew, gcSubs = 1000, 200
	// gcMessages of a round make an edge collect some dozen times.
	gcMessages = 40_000
)

// collector measures what the garbage collector of an edge takes for the same messages to the same
// subscribers, with few other connections and with many. Each of those has a topic of its own.
func (b *bench) collector(ctx context.Context) (err error) {
	defer try.Catch(&err)
	prog := b.Programs
	prog.EdgeEnv = []string{"GODEBUG=gctrace=1"}
	m := try.Get(b.Dir.StartMesh(ctx, prog, 2))
	defer m.Stop()
	var targets []*target
	defer func() {
		for _, t := range targets {
			err = errors.Join(err, t.close())
		}
	}()
	for i, conns := range []int{gcFew, max(b.conns, gcFew)} {
		parked, t, err := b.gcTarget(ctx, m, i, conns)
		if parked != nil {
			defer func() { err = errors.Join(err, parked.Close()) }()
		}
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	found := make([][]collections, len(targets))
	for round := range b.Rounds + 1 {
		for i, t := range targets {
			c := try.Get(b.gcRound(ctx, t))
			if round > 0 { // the first one warms up: the heap finds its size
				found[i] = append(found[i], c)
			}
		}
	}
	b.gcRows(found[0], found[1])
	return nil
}

// gcTarget has conns connections at one edge: subscribers of a topic, and those that idle.
func (b *bench) gcTarget(ctx context.Context, m *local.Mesh, edge, conns int) (_ *swarm.Swarm, _ *target, err error) {
	defer try.Catch(&err)
	own := func(n int) []string { return []string{fmt.Sprintf("bench/gc-%d/own/%d", edge, n)} }
	// 32 source addresses of its own for each edge: ports of one pair are finite.
	from := func(n int) [4]byte { return [4]byte{127, 0, byte(100 + edge), byte(1 + n/8000)} }
	parked := try.Get(swarm.Dial(ctx, swarm.Config{
		Addr: m.Edges[edge].Addr, Conns: conns - gcSubs, From: from, Dialect: &swarm.Push{Topics: own, HeartbeatMs: swarm.Never},
	}))
	topic := fmt.Sprintf("bench/gc-%d", edge)
	t := newTarget(m.Edges[edge].Name, m.Edges[edge], gcSubs)
	if t.Swarm, err = swarm.Dial(ctx, swarm.Config{Addr: m.Edges[edge].Addr, Conns: gcSubs, Dialect: swarm.Subscribe(topic)}); err == nil {
		t.Source, err = publisher.New(ctx, m.Router.Addr, topic, b.size)
	}
	if err != nil {
		return parked, nil, errors.Join(err, t.close())
	}
	return parked, t, nil
}

// gcRound sends its messages, 64 in flight, and says what the edge's collector did meanwhile.
func (b *bench) gcRound(ctx context.Context, t *target) (_ collections, err error) {
	defer try.Catch(&err)
	before := try.Get(os.ReadFile(t.server.Log))
	t.Swarm.Restart()
	const half = 32
	for sent := 0; sent < gcMessages; {
		try.Do(errors.Join(t.Source.Publish(half), ctx.Err()))
		sent += half
		if sent == gcMessages {
			t.Swarm.Await(sent)
		} else {
			t.Swarm.Await(sent - half)
		}
		try.Do(t.Swarm.Until(20 * time.Second))
	}
	after := try.Get(os.ReadFile(t.server.Log))
	c, err := readTrace(string(after[len(before):]))
	if err == nil && len(c.pauses) < 3 {
		err = fmt.Errorf("%s collected %d times", t.Name, len(c.pauses))
	}
	return c, err
}

// collections are what the collector took, in ms.
type collections struct {
	cpu    float64
	pauses []float64 // of each, both stops of the world together
}

// readTrace reads what GODEBUG=gctrace=1 writes:
//
//	gc 7 @1.250s 0%: 0.031+0.66+0.009 ms clock, 0.062+0.12/0.58/0+0.018 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P
func readTrace(said string) (c collections, err error) {
	for line := range strings.Lines(said) {
		clock, rest, ok := strings.Cut(line, " ms clock, ")
		if !ok || !strings.HasPrefix(line, "gc ") {
			continue
		}
		cpu, _, ok := strings.Cut(rest, " ms cpu")
		stops, bad := sums(clock[strings.LastIndexByte(clock, ' ')+1:])
		if len(stops) != 3 || !ok {
			return c, fmt.Errorf("not a trace of the collector: %q", line)
		}
		parts, worse := sums(cpu)
		if err := errors.Join(bad, worse); err != nil {
			return c, fmt.Errorf("%q: %w", line, err)
		}
		c.pauses = append(c.pauses, stops[0]+stops[2])
		for _, part := range parts {
			c.cpu += part
		}
	}
	return c, nil
}

// sums are numbers between + and /.
func sums(s string) (_ []float64, err error) {
	defer try.Catch(&err)
	var all []float64
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r == '+' || r == '/' }) {
		v := try.Get(strconv.ParseFloat(field, 64))
		all = append(all, v)
	}
	return all, nil
}

func (b *bench) gcRows(few, many []collections) {
	of := func(all []collections, f func(collections) float64) (v []float64) {
		for _, c := range all {
			v = append(v, f(c))
		}
		return v
	}
	what := fmt.Sprintf("%d connections as a ratio to %d, %d messages to %d", max(b.conns, gcFew), gcFew, gcMessages, gcSubs)
	row := func(name string, limited bool, f func(collections) float64) {
		a, z := of(few, f), of(many, f)
		refs := fmt.Sprintf("%.3g ms and %.3g ms, %d and %d collections", table.Median(a), table.Median(z), len(few[0].pauses), len(many[0].pauses))
		if limited {
			b.Add(table.AtMost(name+", "+what, table.Ratio(z, a), "×", 1.2, refs))
		} else {
			b.Add(table.Figure(name+", "+what, table.Ratio(z, a), "×", refs))
		}
	}
	row("garbage collector's CPU", true, func(c collections) float64 { return c.cpu })
	row("its longest pause", true, func(c collections) float64 { return slices.Max(c.pauses) })
	row("its median pause", false, func(c collections) float64 { return table.Median(c.pauses) })
}

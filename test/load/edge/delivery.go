package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// The servers that deliver side by side; all have the same subscribers and get the same messages.
const (
	bareWrite = "bare-write"
	bareURing = "bare-uring"
	ephemeral = "edge"
	durable   = "edge, durable"
	other     = "other build"
)

// delivery measures CPU per delivery of all servers in turns, so that what else happens on the
// machine meets all of them.
func (b *bench) delivery(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	defer m.Stop()
	var targets []*target
	missing := map[string]string{}
	defer func() {
		for _, t := range targets {
			err = errors.Join(err, t.close())
		}
	}()
	for _, name := range []string{bareWrite, ephemeral, other, bareURing, durable, "redis", "mosquitto", "nats"} {
		var t *target
		if name != bareWrite && name != ephemeral && !b.servers.MatchString(name) || name == other && b.versus == "" {
			continue
		}
		switch name {
		case other:
			programs := b.Programs
			programs.Bin = b.versus
			m := try.Get(b.Dir.StartMesh(ctx, programs, 1))
			defer m.Stop()
			t = try.Get(b.edgeTarget(ctx, m, name, "bench/all", b.subs))
		case ephemeral:
			t, err = b.edgeTarget(ctx, m, name, "bench/all", b.subs)
		case durable:
			t, err = b.edgeTarget(ctx, m, name, "room/bench", b.subs)
		default:
			t, err = b.peerTarget(ctx, name, b.subs)
		}
		switch {
		case errors.Is(err, local.ErrNotInstalled):
			missing[name] = name + " not installed"
		case err != nil && (name == ephemeral || name == bareWrite):
			return err
		case err != nil:
			missing[name] = fmt.Sprintf("%s failed: %.100s", name, err.Error())
		default:
			targets = append(targets, t)
		}
	}
	for _, window := range []int{1, 64} {
		cost := map[string][]float64{}
		rate := map[string][]float64{}
		for range b.Rounds {
			for _, t := range targets {
				s := try.Get(t.Pump(ctx, window, b.Span))
				cost[t.Name] = append(cost[t.Name], s.PerDelivery())
				rate[t.Name] = append(rate[t.Name], s.Rate())
			}
		}
		b.deliveryRows(window, cost, rate, missing)
	}
	try.Do(b.allocated(ctx, m.Edges[0], targets))
	for _, t := range targets {
		if t.Name == ephemeral {
			for _, window := range []int{1, 64} {
				try.Do(b.cpuProfile(ctx, t, fmt.Sprintf("window-%d", window), window))
			}
		}
	}
	return nil
}

func (b *bench) deliveryRows(window int, cost, rate map[string][]float64, missing map[string]string) {
	what := fmt.Sprintf("%d subscribers, %d B, window %d", b.subs, b.size, window)
	var refs []string
	for _, name := range []string{bareWrite, bareURing, other, "redis", "mosquitto", "nats"} {
		if v := cost[name]; len(v) > 0 {
			refs = append(refs, fmt.Sprintf("%s %.3f", name, table.Median(v)))
		} else if missing[name] != "" {
			refs = append(refs, missing[name])
		}
	}
	goal := 0.8
	if len(cost[bareURing]) == 0 {
		goal = 1.1 // a kernel without io_uring
	}
	if window > 1 {
		goal = 1.3
	}
	b.Add(
		table.Figure("edge CPU per delivery, "+what, table.Median(cost[ephemeral]), "µs", strings.Join(refs, ", ")),
		table.AtMost("edge CPU per delivery as a ratio to bare-write, "+what, table.Ratio(cost[ephemeral], cost[bareWrite]), "×", goal, versus(cost, missing)),
		table.Figure("edge CPU per delivery, durable topic, "+what, table.Median(cost[durable]), "µs", "ratio to bare-write "+fmt.Sprintf("%.3f", table.Ratio(cost[durable], cost[bareWrite]))+missing[durable]),
		table.Figure("deliveries per second, "+what, table.Median(rate[ephemeral]), "1/s", versus(rate, missing)),
	)
}

// cpuProfile measures once more, with the edge's CPU profile on: it costs some, so that no row
// comes from here.
func (b *bench) cpuProfile(ctx context.Context, t *target, name string, window int) error {
	if b.Profile == "" {
		return nil
	}
	const seconds = 4
	done := b.Profiles(ctx, name, seconds, t.server)
	_, err := t.Pump(ctx, window, (seconds+1)*time.Second)
	return errors.Join(err, done())
}

// versus lists the edge's figures as multiples of the others'.
func versus(v map[string][]float64, missing map[string]string) string {
	var all []string
	for _, name := range []string{bareWrite, bareURing, other, "redis", "mosquitto", "nats"} {
		if len(v[name]) > 0 {
			all = append(all, fmt.Sprintf("%.2f × %s", table.Ratio(v[ephemeral], v[name]), name))
		} else if missing[name] != "" {
			all = append(all, missing[name])
		}
	}
	return strings.Join(all, ", ")
}

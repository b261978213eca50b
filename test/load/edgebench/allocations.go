package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// budgetTest is the edge's own test of what a delivery allocates on a loop; it fails with the
// number.
const budgetTest = "TestDeliveryMakesNoGarbage"

var budgetFault = regexp.MustCompile(`(\d+(?:\.\d+)?) allocations for (\d+) deliveries`)

// allocations runs the edge's budget test.
func (b *bench) allocations(ctx context.Context) error {
	if b.budget == "" {
		return errors.New("-budget names no tests")
	}
	out, err := exec.CommandContext(ctx, b.budget, "-test.run", "^"+budgetTest+"$", "-test.v").CombinedOutput()
	per := 0.0
	switch found := budgetFault.FindSubmatch(out); {
	case found != nil:
		n, _ := strconv.ParseFloat(string(found[1]), 64)
		of, _ := strconv.ParseFloat(string(found[2]), 64)
		per = n / of
	case err != nil:
		return fmt.Errorf("%s: %w: %s", budgetTest, err, out)
	case !bytes.Contains(out, []byte("--- PASS: "+budgetTest)):
		return fmt.Errorf("%s did not run: %s", budgetTest, out)
	}
	b.rows = append(b.rows, table.AtMost("allocations per delivered message on the loop", per, "1", 0, budgetTest))
	return nil
}

// allocated measures what the whole edge process allocates per delivery, decoding of batches and
// all, and how much goes out at once.
func (b *bench) allocated(ctx context.Context, edge *local.Process, targets []*target) error {
	for _, t := range targets {
		if t.Name != ephemeral {
			continue
		}
		before, err := figures(ctx, edge)
		if err != nil {
			return err
		}
		s, err := t.Pump(ctx, 64, b.span)
		if err != nil {
			return err
		}
		after, err := figures(ctx, edge)
		if err != nil {
			return err
		}
		per := func(name string) float64 { return (after[name] - before[name]) / float64(s.Deliveries) }
		b.rows = append(b.rows,
			table.Figure("allocations per delivery, whole edge process, window 64", per(mallocs), "1", ""),
			table.Figure("writes per delivery, window 64", per(writes), "1", "1/32 where each half of a window leaves in one"),
		)
	}
	return nil
}

// Names of metrics.
const (
	mallocs = "go_memstats_mallocs_total"
	writes  = "pushmesh_edge_socket_writes_total"
	loops   = "pushmesh_edge_loops"
	fullest = "pushmesh_edge_loop_connections_max"
)

// figures reads the metrics that have no label.
func figures(ctx context.Context, p *local.Process) (map[string]float64, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				all[name] = v
			}
		}
	}
	for _, name := range []string{mallocs, writes, loops, fullest} {
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("%s has no %s", p.Name, name)
		}
	}
	return all, nil
}

package edge

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// budgetTest is the edge's own test of what a delivery allocates on a loop; it fails with the
// number.
const budgetTest = "TestDeliveryMakesNoGarbage"

var budgetFault = regexp.MustCompile(`(\d+(?:\.\d+)?) allocations for (\d+) deliveries`)

// allocations runs the edge's budget test.
func (b *bench) allocations(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, b.Tools+"/budget", "-test.run", "^"+budgetTest+"$", "-test.v").CombinedOutput()
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
	b.Add(table.AtMost("allocations per delivered message on the loop", per, "1", 0, budgetTest))
	return nil
}

// allocated measures what the whole edge process allocates per delivery, decoding of batches and
// all, and how much goes out at once.
func (b *bench) allocated(ctx context.Context, edge *local.Process, targets []*target) (err error) {
	defer try.Catch(&err)
	for _, t := range targets {
		if t.Name != ephemeral {
			continue
		}
		before := try.Get(edge.Metrics(ctx))
		s := try.Get(t.Pump(ctx, 64, b.Span))
		after := try.Get(edge.Metrics(ctx))
		per := func(name string) float64 { return (after[name] - before[name]) / float64(s.Deliveries) }
		b.Add(
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

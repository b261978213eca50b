package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/table"
)

// budget is the edge's own test of what a delivery allocates on a loop; it fails with the number.
const (
	budgetPackage = "./services/edge/internal/hub"
	budgetTest    = "TestDeliveryMakesNoGarbage"
)

var budgetFault = regexp.MustCompile(`(\d+(?:\.\d+)?) allocations for (\d+) deliveries`)

// allocations runs the edge's budget test.
func (b *bench) allocations(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-run", "^"+budgetTest+"$", "-v", budgetPackage)
	cmd.Dir = b.root
	out, err := cmd.CombinedOutput()
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

// allocated measures what the whole edge process allocates per delivery, decoding of batches and all.
func (b *bench) allocated(ctx context.Context, edge *local.Process, targets []*target) error {
	for _, t := range targets {
		if t.Name != ephemeral {
			continue
		}
		before, err := mallocs(ctx, edge)
		if err != nil {
			return err
		}
		s, err := t.Pump(ctx, 64, b.span)
		if err != nil {
			return err
		}
		after, err := mallocs(ctx, edge)
		if err != nil {
			return err
		}
		b.rows = append(b.rows, table.Figure("allocations per delivery, whole edge process, window 64", (after-before)/float64(s.Deliveries), "1", ""))
	}
	return nil
}

var mallocsLine = regexp.MustCompile(`(?m)^go_memstats_mallocs_total (\S+)$`)

func mallocs(ctx context.Context, p *local.Process) (float64, error) {
	text, err := p.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	found := mallocsLine.FindSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("%s: no go_memstats_mallocs_total", p.Name)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

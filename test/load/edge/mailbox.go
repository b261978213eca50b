package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// mailbox runs the benchmark of the edge's mailbox: events from some goroutines to the one that is
// the loop.
func (b *bench) mailbox(ctx context.Context) (err error) {
	defer try.Catch(&err)
	found := try.Get(b.Benchmark(ctx, "mailbox", "Throughput", "200ms", b.Rounds))
	var medians []float64
	var refs []string
	for name, units := range found {
		rate := table.Median(units["M-items/s"])
		medians = append(medians, rate)
		refs = append(refs, fmt.Sprintf("%s %.3g", strings.ReplaceAll(strings.TrimPrefix(name, "Throughput/"), "_", " "), rate))
	}
	slices.Sort(refs)
	b.Add(table.AtLeast("events through one mailbox, whichever number of senders is slowest", slices.Min(medians), "M/s", 5, strings.Join(refs, ", ")))
	return nil
}

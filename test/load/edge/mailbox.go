package edge

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/test/load/table"
)

// throughput is a line of the mailbox's own benchmark.
var throughput = regexp.MustCompile(`Throughput/(\d+)_senders\S*\s.*\s([\d.]+) M-items/s`)

// mailbox runs the benchmark of the edge's mailbox: events from some goroutines to the one that is
// the loop.
func (b *bench) mailbox(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, b.Tools+"/mailbox", "-test.run", "^$", "-test.bench", "Throughput", "-test.benchtime", "200ms", "-test.count", strconv.Itoa(b.Rounds)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mailbox: %w: %s", err, out)
	}
	rates := map[string][]float64{}
	for _, found := range throughput.FindAllStringSubmatch(string(out), -1) {
		v, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return err
		}
		rates[found[1]] = append(rates[found[1]], v)
	}
	if len(rates) == 0 {
		return fmt.Errorf("the mailbox's benchmark did not run: %s", out)
	}
	var worst float64
	var refs []string
	for senders, v := range rates {
		if m := table.Median(v); worst == 0 || m < worst {
			worst = m
		}
		refs = append(refs, fmt.Sprintf("%s senders %.3g", senders, table.Median(v)))
	}
	slices.Sort(refs)
	b.Add(table.AtLeast("events through one mailbox, whichever number of senders is slowest", worst, "M/s", 5, strings.Join(refs, ", ")))
	return nil
}

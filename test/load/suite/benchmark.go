package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Benchmark runs benchmarks of a package, as go test -c built them, and returns their figures by
// name and unit, one for each time.
func (r *Run) Benchmark(ctx context.Context, program, run, span string, times int, env ...string) (map[string]map[string][]float64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.Tools, program), "-test.run", "^$", "-test.bench", run, "-test.benchtime", span, "-test.count", strconv.Itoa(times))
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", run, err, out)
	}
	found := benchmarks(string(out))
	if len(found) == 0 {
		return nil, fmt.Errorf("%s did not run: %s", run, out)
	}
	return found, nil
}

// benchmarks are what go test -bench printed.
func benchmarks(out string) map[string]map[string][]float64 {
	found := map[string]map[string][]float64{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at > 0 {
			name = name[:at]
		}
		if found[name] == nil {
			found[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				found[name][f[i+1]] = append(found[name][f[i+1]], v)
			}
		}
	}
	return found
}

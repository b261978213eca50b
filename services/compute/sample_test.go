package compute

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// sampled is one LibSVM line: a relevance and sparse features.
type sampled struct {
	relevance float64
	features  map[string]float64
}

// readSample reads testdata, query by query.
func readSample(t *testing.T) [][]sampled {
	t.Helper()
	lines, sizes := readLines(t, "testdata/rank_sample.txt"), readLines(t, "testdata/rank_sample.query")
	var out [][]sampled
	for _, size := range sizes {
		n, err := strconv.Atoi(size)
		if err != nil || n > len(lines) {
			t.Fatal(size, err)
		}
		var query []sampled
		for _, line := range lines[:n] {
			query = append(query, parseLine(t, line))
		}
		out, lines = append(out, query), lines[n:]
	}
	return out
}

func parseLine(t *testing.T, line string) sampled {
	t.Helper()
	fields := strings.Fields(line)
	s := sampled{relevance: number(t, fields[0]), features: map[string]float64{}}
	for _, f := range fields[1:] {
		name, value, _ := strings.Cut(f, ":")
		s.features[name] = number(t, value)
	}
	return s
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

package table

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// Only is an expression that matches the names of parts: one of several that are separated by
// commas. "" matches all.
func Only(list string) (*regexp.Regexp, error) {
	return regexp.Compile(strings.ReplaceAll(list, ",", "|"))
}

// Part of a benchmark, which keeps its own rows.
type Part struct {
	Name string
	Run  func(context.Context) error
}

// Run runs the parts whose name matches, one after the other, and says how long each took. What
// failed becomes a row.
func Run(ctx context.Context, only *regexp.Regexp, rows *[]Row, parts ...Part) {
	for _, p := range parts {
		if !only.MatchString(p.Name) {
			continue
		}
		began := time.Now()
		if err := p.Run(ctx); err != nil {
			*rows = append(*rows, Failed(p.Name, "-", err))
		}
		fmt.Printf("# %s took %.0f s, load average %s\n", p.Name, time.Since(began).Seconds(), LoadAverage())
	}
}

// LoadAverage of the machine over 1, 5 and 15 minutes.
func LoadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil || len(b) < 14 {
		return "unknown"
	}
	return string(b[:14])
}

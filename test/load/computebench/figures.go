package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/test/load/local"
)

// figures are a process's metrics by name and labels.
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
	return all, nil
}

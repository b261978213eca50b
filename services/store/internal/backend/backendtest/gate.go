package backendtest

import (
	"context"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Gate wraps a backend so that commits wait for leave, and are counted.
type Gate struct {
	backend.Backend
	Entered chan int // runs of a commit that wants to begin
	Leave   chan error
}

// NewGate makes a gate that every commit must pass: it sends on Entered, then takes from Leave; an
// error stands for the commit.
func NewGate(b backend.Backend) *Gate {
	return &Gate{Backend: b, Entered: make(chan int), Leave: make(chan error)}
}

// OpenWriter makes a writer behind the gate.
func (g *Gate) OpenWriter(ctx context.Context, o backend.Owner) (backend.Writer, error) {
	w, err := g.Backend.OpenWriter(ctx, o)
	return &gated{w, g}, err
}

type gated struct {
	backend.Writer
	gate *Gate
}

func (g *gated) Commit(ctx context.Context, b *backend.Batch) error {
	n := 0
	for i := range b.Runs {
		n += b.Runs[i].N
	}
	g.gate.Entered <- n
	if err := <-g.gate.Leave; err != nil {
		return err
	}
	return g.Writer.Commit(ctx, b)
}

// Package top shows a mesh as tables that refresh themselves: every node of every tier with its
// rates, latencies and queues.
package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/survey"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Reading is a mesh at one time.
type Reading struct {
	At    time.Time
	Via   string // the router that named the nodes
	Nodes []*pushmeshv1.Node
	// Metrics and Errs are of Nodes, one each.
	Metrics []*survey.Metrics
	Errs    []error
}

// Read asks the mesh for everything. It fails where no router answers.
func Read(ctx context.Context, s *survey.Survey) (*Reading, error) {
	found, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	r := &Reading{
		At: time.Now(), Via: found.GetRouterId(), Nodes: found.GetNodes(),
		Metrics: make([]*survey.Metrics, len(found.GetNodes())), Errs: make([]error, len(found.GetNodes())),
	}
	survey.Each(r.Nodes, func(i int, n *pushmeshv1.Node) {
		if n.GetProblem() == "" {
			r.Metrics[i], r.Errs[i] = s.Metrics(ctx, n)
		}
	})
	return r, nil
}

// before is what an earlier reading knows of the same process.
func (r *Reading) before(n *pushmeshv1.Node) *survey.Metrics {
	if r == nil {
		return nil
	}
	for i, old := range r.Nodes {
		if old.GetTier() == n.GetTier() && old.GetId() == n.GetId() && old.GetIncarnation() == n.GetIncarnation() {
			return r.Metrics[i]
		}
	}
	return nil
}

// Order of rows.
type Order int

// The orders, one after the other.
const (
	ByName Order = iota
	ByLoad
	ByDelay
	orders
)

func (o Order) String() string { return [...]string{"name", "load", "delay"}[o] }

type row struct {
	id, state string
	values    []float64
	known     []bool
	problem   string
}

// Picture is the tables of a reading as lines. Rates and latencies are of the time since before,
// which may be nil.
func Picture(now, before *Reading, order Order) []string {
	lines := []string{summary(now, before)}
	for _, t := range tiers {
		rows := t.rows(now, before)
		if len(rows) == 0 {
			continue
		}
		t.sort(rows, order)
		lines = append(lines, "")
		lines = append(lines, t.lines(rows)...)
	}
	return lines
}

// summary adds up what the mesh does.
func summary(now, before *Reading) string {
	var conns, published, delivered float64
	rates, heard := false, 0
	for i, n := range now.Nodes {
		if n.GetProblem() != "" {
			continue
		}
		heard++
		m, old := now.Metrics[i], before.before(n)
		switch n.GetTier() {
		case pushmeshv1.Tier_TIER_EDGE:
			conns += float64(n.GetConnections())
			v, _ := m.Rate(old, "pushmesh_edge_deliveries_total", nil)
			delivered += v
		case pushmeshv1.Tier_TIER_ROUTER:
			v, ok := m.Rate(old, "pushmesh_router_publishes_total", survey.Match{"code": "OK"})
			published += v
			rates = rates || ok
		}
	}
	line := fmt.Sprintf("%d nodes, %s connections", heard, count(conns))
	if gone := len(now.Nodes) - heard; gone > 0 {
		line = fmt.Sprintf("%d nodes, %d gone, %s connections", heard, gone, count(conns))
	}
	if rates {
		line += fmt.Sprintf(", %s published/s, %s delivered/s", count(published), count(delivered))
	}
	return line + fmt.Sprintf("; via %s, %s", now.Via, now.At.UTC().Format("15:04:05Z"))
}

func (t *tier) rows(now, before *Reading) (rows []row) {
	for i, n := range now.Nodes {
		if n.GetTier() != t.of {
			continue
		}
		r := row{id: cmp.Or(n.GetId(), n.GetGrpcAddress()), state: state(n)}
		switch {
		case n.GetProblem() != "":
			r.state, r.problem = "gone", n.GetProblem()
		case now.Errs[i] != nil:
			r.state, r.problem = "silent", now.Errs[i].Error()
		}
		o := one{n, now.Metrics[i], before.before(n)}
		for _, c := range t.columns {
			v, ok := 0.0, false
			if r.problem == "" {
				v, ok = c.of(o)
			}
			r.values, r.known = append(r.values, v), append(r.known, ok)
		}
		rows = append(rows, r)
	}
	return rows
}

func state(n *pushmeshv1.Node) string {
	switch {
	case n.GetDraining():
		return "drains"
	case n.GetReady() == pushmeshv1.Ready_READY_NO:
		return "unready"
	}
	return "ok"
}

// sort puts those with a problem first, and the greatest load or delay above others; equal ones
// stay by name.
func (t *tier) sort(rows []row, order Order) {
	slices.SortStableFunc(rows, func(a, b row) int {
		if by := cmp.Compare(min(len(b.problem), 1), min(len(a.problem), 1)); by != 0 && order != ByName {
			return by
		}
		switch order {
		case ByLoad:
			return cmp.Compare(b.values[t.load], a.values[t.load])
		case ByDelay:
			return cmp.Compare(b.values[t.delay], a.values[t.delay])
		}
		return cmp.Compare(a.id, b.id)
	})
}

func (t *tier) lines(rows []row) []string {
	head := []string{t.name, "STATE"}
	for _, c := range t.columns {
		head = append(head, c.title)
	}
	table := [][]string{head}
	for _, r := range rows {
		cells := []string{r.id, r.state}
		for i, c := range t.columns {
			cell := "-"
			if r.known[i] {
				cell = c.show(r.values[i])
			}
			cells = append(cells, cell)
		}
		if r.problem != "" {
			cells = []string{r.id, r.state, r.problem}
		}
		table = append(table, cells)
	}
	return align(table, len(head))
}

// align pads cells to the width of their column: names to the right side of theirs, numbers to the
// left. A row with fewer cells ends with what is said in words.
func align(table [][]string, columns int) []string {
	width := make([]int, columns)
	for _, cells := range table {
		for i, c := range cells {
			if len(cells) == columns || i < 2 {
				width[i] = max(width[i], utf8.RuneCountInString(c))
			}
		}
	}
	var lines []string
	for _, cells := range table {
		var b strings.Builder
		for i, c := range cells {
			pad := strings.Repeat(" ", max(width[i]-utf8.RuneCountInString(c), 0))
			switch {
			case i < 2:
				b.WriteString(c + pad + "  ")
			case len(cells) < columns:
				b.WriteString(strings.Join(strings.Fields(c), " "))
			default:
				b.WriteString(pad + c + "  ")
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

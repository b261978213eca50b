// Package table holds what benchmarks found: rows that are printed and written as JSON.
package table

import (
	"encoding/json"
	"fmt"
	"github.com/pushmesh/pushmesh/test/load/try"
	"io"
	"math"
	"os"
)

// Row is one measured figure. Goal and Met are null where there is nothing to reach, Reference is
// "" without anything to compare with.
type Row struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Goal  *float64 `json:"goal"`
	// Reference is what others needed in the same run, and what is missing on this machine.
	Reference string `json:"reference"`
	Met       *bool  `json:"met"`

	sign string
	note string
}

// Figure is a row without a goal.
func Figure(name string, value float64, unit, reference string) Row {
	return Row{Name: name, Value: round(value), Unit: unit, Reference: reference}
}

// AtMost is a row that meets its goal where the value is not above it.
func AtMost(name string, value float64, unit string, goal float64, reference string) Row {
	r := Figure(name, value, unit, reference)
	met := value <= goal
	r.Goal, r.Met, r.sign = &goal, &met, "≤ "
	return r
}

// AtLeast is a row that meets its goal where the value is not below it.
func AtLeast(name string, value float64, unit string, goal float64, reference string) Row {
	r := Figure(name, value, unit, reference)
	met := value >= goal
	r.Goal, r.Met, r.sign = &goal, &met, "≥ "
	return r
}

// Failed is a row that could not be measured: it never counts as met.
func Failed(name, unit string, err error) Row {
	met := false
	return Row{Name: name, Unit: unit, Reference: "failed: " + err.Error(), Met: &met, note: "failed"}
}

// round keeps four digits of what is small and whole numbers of what is large: more is noise.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	p := math.Pow(10, max(0, 3-math.Floor(math.Log10(math.Abs(v)))))
	return math.Round(v*p) / p
}

// Print writes the rows as a table.
func Print(out io.Writer, rows []Row) (err error) {
	defer try.Catch(&err)
	const form = "%-66s %12s %-12s %10s %-5s %s\n"
	try.Get(fmt.Fprintf(out, form, "name", "value", "unit", "goal", "met", "reference"))
	for _, r := range rows {
		value, goal, met := fmt.Sprint(r.Value), "-", "-"
		if r.Value >= 1e6 {
			value = fmt.Sprintf("%.0f", r.Value)
		}
		if r.note != "" {
			value = r.note
		}
		if r.Goal != nil {
			goal = fmt.Sprintf("%s%v", r.sign, *r.Goal)
		}
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "NO"}[*r.Met]
		}
		try.Get(fmt.Fprintf(out, form, r.Name, value, r.Unit, goal, met, r.Reference))
	}
	return nil
}

// WriteJSON writes the rows as an array to a file; "" is no file.
func WriteJSON(file string, rows []Row) error {
	if file == "" {
		return nil
	}
	b, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

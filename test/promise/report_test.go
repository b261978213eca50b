package promise

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/load/table"
)

// report of the runs of this process, which is written when all have ended.
var report reported

// reported gathers figures.
type reported struct {
	rows  []table.Row
	crowd []string // breaches that the crowds have found since the last run was added
}

// add what happened in a run: faults by kind, what was published and delivered, and breaches, of
// which there may be none.
func (r *reported) add(run string, seed uint64, f *Faults, verdicts ...*Verdict) {
	name := func(what string) string { return run + ": " + what }
	for _, kind := range slices.Sorted(maps.Keys(f.Kinds)) {
		var of []string
		for _, v := range f.Victims {
			if n := f.Struck[v.Name]; v.Kind == kind && n > 0 {
				of = append(of, fmt.Sprintf("%s %d", v.Name, n))
			}
		}
		r.rows = append(r.rows, table.Figure(name(string(kind)), float64(f.Kinds[kind]), "faults", strings.Join(of, ", ")))
	}
	r.rows = append(r.rows, table.Figure(name("all faults"), float64(f.Total()), "faults", fmt.Sprintf("SEED=%d", seed)))
	answered, deliveries, breaches := 0, 0, len(r.crowd)
	broken := []string{}
	if breaches > 0 {
		broken = append(broken, fmt.Sprintf("heads rewound: %d", breaches))
	}
	for _, v := range verdicts {
		answered, deliveries = answered+v.Answered, deliveries+v.Deliveries
		for _, promise := range slices.Sorted(maps.Keys(v.Counts)) {
			breaches += v.Counts[promise]
			broken = append(broken, fmt.Sprintf("%s: %d", promise, v.Counts[promise]))
		}
	}
	r.crowd = nil
	r.rows = append(r.rows,
		table.Figure(name("durable messages answered"), float64(answered), "messages", ""),
		table.Figure(name("deliveries"), float64(deliveries), "messages", ""),
		table.AtMost(name("breaches"), float64(breaches), "breaches", 0, strings.Join(broken, ", ")))
}

// write prints the table where there is one, and writes it as JSON to a file, unless that is "".
func (r *reported) write(out io.Writer, file string) error {
	if len(r.rows) == 0 {
		return nil
	}
	if err := table.Print(out, r.rows); err != nil {
		return err
	}
	return table.WriteJSON(file, r.rows)
}

// A report counts faults by their kind, and every breach, also a crowd's; who has any has not
// reached the goal.
func TestAReportCountsFaultsByKindAndEveryBreach(t *testing.T) {
	nothing := func() error { return nil }
	f := &Faults{Victims: []Victim{
		{Name: "edge-1", Kind: Kill, Strike: nothing, Back: nothing},
		{Name: "edge-2", Kind: Kill, Strike: nothing, Back: nothing},
		{Name: "edge-1 frozen", Kind: Freeze, Strike: nothing, Back: nothing},
	}}
	for _, v := range append(f.Victims, f.Victims[0]) {
		if err := f.Strike(v); err != nil {
			t.Fatal(err)
		}
	}
	r := reported{crowd: []string{"two messages were answered epoch 1 seq 1"}}
	r.add("bad", 7, f, &Verdict{Answered: 10, Counts: map[string]int{}}, &Verdict{Answered: 5, Counts: map[string]int{Complete: 2}})
	r.add("good", 8, f, &Verdict{Counts: map[string]int{}})
	file := filepath.Join(t.TempDir(), "chaos.json")
	var out strings.Builder
	if err := r.write(&out, file); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file) // #nosec G304 -- written above
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range rows {
		got[row["name"].(string)] = fmt.Sprintf("%v %v %v %v", row["value"], row["unit"], row["goal"], row["met"])
	}
	for name, want := range map[string]string{
		"bad: kill": "3 faults <nil> <nil>", "bad: freeze": "1 faults <nil> <nil>", "bad: all faults": "4 faults <nil> <nil>",
		"bad: durable messages answered": "15 messages <nil> <nil>", "bad: breaches": "3 breaches 0 false", "good: breaches": "0 breaches 0 true",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s is not in the table", name)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

// score is what the tests of a package noticed.
type score struct {
	pkg                    string
	candidates, equivalent int
	results                []result
}

func (s score) count(v verdict) (n int) {
	for _, r := range s.results {
		if r.verdict == v {
			n++
		}
	}
	return n
}

// percent of the tried mutants that the tests killed.
func (s score) percent() float64 {
	if len(s.results) == 0 {
		return 100
	}
	return 100 * float64(s.count(killed)+s.count(timedOut)) / float64(len(s.results))
}

// print names the survivors, those first that no test reaches, each with its label for
// equivalent.txt.
func (s score) print(out io.Writer) {
	for _, v := range []verdict{unreached, survived} {
		for _, r := range s.results {
			if r.verdict == v {
				fmt.Fprintf(out, "  %s %s\n      label: %s\n", map[verdict]string{unreached: "not run ", survived: "survived"}[v], r.mutant, r.label(s.pkg))
			}
		}
	}
	fmt.Fprintf(out, "%s: %.0f %% of %d killed (%d of %d candidates; %d known as equivalent)\n",
		s.pkg, s.percent(), len(s.results), len(s.results), s.candidates, s.equivalent)
}

// row is a figure as every benchmark of this repository writes it.
type row struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Goal      float64 `json:"goal"`
	Reference string  `json:"reference"`
	Met       *bool   `json:"met"`
}

// report prints a table of packages and fails where a goal was missed.
func report(all []score, set settings, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "package\tcandidates\ttried\tkilled\tby time\tsurvived\tnot run\tscore")
	var rows []row
	missed := 0
	for _, s := range all {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f %%\n", s.pkg, s.candidates, len(s.results), s.count(killed), s.count(timedOut), s.count(survived), s.count(unreached), s.percent())
		r := row{Name: s.pkg, Value: s.percent(), Unit: "% of mutants killed", Goal: set.goal}
		if set.goal > 0 {
			met := s.percent() >= set.goal
			r.Met = &met
			if !met {
				missed++
			}
		}
		rows = append(rows, r)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if set.json != "" {
		text, err := json.MarshalIndent(rows, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(set.json, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d packages are below %.0f %%", missed, len(all), set.goal)
	}
	return nil
}

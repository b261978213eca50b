// Package doctor examines a mesh from outside, and says of everything it finds what to do about it.
package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Level says how bad a finding is.
type Level string

// The levels. A mesh is sound where nothing fails.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level `json:"level"`
	// Check names what was looked for: mesh, reach, ready, versions, clock, files, postgres, nats,
	// probe.
	Check string `json:"check"`
	// Subject is the node, database or pair of nodes.
	Subject string `json:"subject"`
	Found   string `json:"found"`
	// Advice says what to do; empty: nothing.
	Advice string `json:"advice,omitempty"`
}

// Report is all that was found, the worst first.
type Report struct {
	Sound    bool      `json:"sound"`
	Findings []Finding `json:"findings"`
}

func (r *Report) add(level Level, check, subject, found, advice string) {
	r.Findings = append(r.Findings, Finding{level, check, subject, strings.Join(strings.Fields(found), " "), advice})
}

func (r *Report) ok(check, subject, format string, args ...any) {
	r.add(OK, check, subject, fmt.Sprintf(format, args...), "")
}

var badness = map[Level]int{OK: 0, Warn: 1, Fail: 2}

// conclude sorts and judges.
func (r *Report) conclude() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(badness[b.Level], badness[a.Level]) })
	r.Sound = !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == Fail })
}

// Print writes lines for people.
func (r *Report) Print(w io.Writer) error {
	counts := map[Level]int{}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.Findings {
		counts[f.Level]++
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Level, f.Check, f.Subject, f.Found)
		if f.Advice != "" {
			if err := t.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(w, "      -> %s\n", f.Advice)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d ok, %d to look at, %d failed\n", counts[OK], counts[Warn], counts[Fail])
	return err
}

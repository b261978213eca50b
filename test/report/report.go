package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	Elapsed    float64
	ImportPath string // of build-output and build-fail
}

// notRun begins a line in which a test that passes says what it could not try, and why. It is shown
// whatever becomes of the test.
const notRun = "NOT RUN: "

// summary of a run.
type summary struct {
	packages, passed, failed int
	skipped                  []string
	broken                   []string // packages that failed, with or without a failed test
	reasons                  []string // what each failed test said of why
}

// verdict is nil where something ran and all of it passed.
func (s *summary) verdict() error {
	switch {
	case len(s.broken) > 0:
		return fmt.Errorf("failed: %s", strings.Join(s.broken, ", "))
	case s.failed > 0:
		return fmt.Errorf("%d tests failed", s.failed)
	case len(s.skipped) > 0:
		return fmt.Errorf("skipped, which counts as a failure: %s", strings.Join(s.skipped, ", "))
	case s.passed == 0:
		return errors.New("no test ran")
	}
	return nil
}

// reader gathers what tests say until it is known whether anyone wants to read it.
type reader struct {
	out     io.Writer
	verbose bool
	sum     summary
	said    map[string][]string // by package and test, "" being the package itself
	tests   map[string]int      // by package
	running map[string]bool     // packages without an end yet
}

func key(pkg, test string) string { return pkg + "\x00" + test }

// report prints while it reads and returns the sum.
func report(in io.Reader, out io.Writer, verbose bool) (*summary, error) {
	r := &reader{out: out, verbose: verbose, said: map[string][]string{}, tests: map[string]int{}, running: map[string]bool{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
	}
	// A package without an end was cut off: whatever it said matters, and it did not pass.
	for _, pkg := range slices.Sorted(maps.Keys(r.running)) {
		r.sum.broken = append(r.sum.broken, pkg+" (no end)")
	}
	// At the end once more: the logs of a mesh that a failed test prints are long, and may have
	// been cut off by whoever keeps the output.
	for _, reason := range r.sum.reasons {
		fmt.Fprintln(out, reason)
	}
	fmt.Fprintf(out, "total: %d packages, %d tests passed, %d failed, %d skipped\n",
		r.sum.packages, r.sum.passed, r.sum.failed, len(r.sum.skipped))
	return &r.sum, nil
}

func (r *reader) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		// go's own word, as in a fault of a build
		fmt.Fprintf(r.out, "%s\n", strings.TrimRight(string(line), "\n"))
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "build-fail":
	case e.Action == "start":
		r.running[e.Package] = true
	case e.Action == "output" && strings.HasPrefix(e.Output, notRun):
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output":
		k := key(e.Package, e.Test)
		r.said[k] = append(r.said[k], e.Output)
	case e.Test != "":
		r.testEnded(e)
	default:
		r.packageEnded(e)
	}
}

func (r *reader) testEnded(e event) {
	k := key(e.Package, e.Test)
	switch e.Action {
	case "pass":
		r.sum.passed++
		r.tests[e.Package]++
		if r.verbose && !strings.Contains(e.Test, "/") {
			fmt.Fprintf(r.out, "--- PASS: %s (%.2fs)\n", e.Test, e.Elapsed)
		}
	case "fail":
		r.sum.failed++
		r.tests[e.Package]++
		r.print(k)
		r.sum.reasons = append(r.sum.reasons, reasons(e.Package+"."+e.Test, r.said[k])...)
	case "skip":
		r.sum.skipped = append(r.sum.skipped, e.Package+"."+e.Test)
		r.print(k)
	default: // run, pause, cont: not an end
		return
	}
	delete(r.said, k)
}

func (r *reader) packageEnded(e event) {
	switch e.Action {
	case "pass":
		r.sum.packages++
		fmt.Fprintf(r.out, "ok  \t%s\t%.2fs\t%d tests\n", e.Package, e.Elapsed, r.tests[e.Package])
	case "fail":
		r.sum.packages++
		r.sum.broken = append(r.sum.broken, e.Package)
		r.printAll(e.Package)
		fmt.Fprintf(r.out, "FAIL\t%s\t%.2fs\t%d tests\n", e.Package, e.Elapsed, r.tests[e.Package])
	case "skip": // a package without test files
		fmt.Fprintf(r.out, "?   \t%s\t[no test files]\n", e.Package)
	default:
		return
	}
	delete(r.running, e.Package)
	for k := range r.said {
		if strings.HasPrefix(k, e.Package+"\x00") {
			delete(r.said, k)
		}
	}
}

// printAll prints what the package and its tests without an end said: a panic or a timeout is
// there, and is among the reasons at the end.
func (r *reader) printAll(pkg string) {
	r.sum.reasons = append(r.sum.reasons, "failed: "+pkg)
	for _, k := range slices.Sorted(maps.Keys(r.said)) {
		if name, ok := strings.CutPrefix(k, pkg+"\x00"); ok {
			r.print(k)
			r.sum.reasons = append(r.sum.reasons, reasons(strings.TrimSuffix(pkg+"."+name, "."), r.said[k])...)
		}
	}
}

func (r *reader) print(k string) {
	for _, line := range r.said[k] {
		fmt.Fprint(r.out, line)
	}
}

// reason is how a line begins that a test wrote with t.Error or t.Log, or that the runtime or the
// race detector wrote.
var reason = regexp.MustCompile(`^ *\w+\.go:\d+: |^panic: |^fatal error: |^WARNING: DATA RACE`)

// Of what a failed test said, reasonsMost lines at each end are repeated, reasonsOfOne of those
// that one place of a program wrote, and reasonLength characters of each: logs of a mesh's
// processes begin as a test's errors do.
const (
	reasonsMost  = 10
	reasonsOfOne = 3
	reasonLength = 400
)

// reasons are the lines in which a failed test said why, each with the test's name before it.
func reasons(test string, said []string) (lines []string) {
	from := map[string]int{}
	for _, line := range said {
		place := reason.FindString(line)
		if from[place]++; place != "" && from[place] <= reasonsOfOne {
			lines = append(lines, fmt.Sprintf("failed: %s: %.*s", test, reasonLength, strings.TrimSpace(line)))
		}
	}
	if len(lines) > 2*reasonsMost {
		lines = slices.Delete(lines, reasonsMost, len(lines)-reasonsMost)
	}
	return lines
}

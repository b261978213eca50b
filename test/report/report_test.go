package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func run(t *testing.T, verbose bool, lines ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	sum, err := report(strings.NewReader(strings.Join(lines, "\n")), &out, verbose)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), sum.verdict()
}

func TestReportCountsAndHidesWhatPassed(t *testing.T) {
	out, err := run(t, false,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
		`{"Action":"pass","Package":"p","Elapsed":0.1}`,
		`{"Action":"start","Package":"q"}`,
		`{"Action":"skip","Package":"q"}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	want := "ok  \tp\t0.10s\t1 tests\n?   \tq\t[no test files]\ntotal: 1 packages, 1 tests passed, 0 failed, 0 skipped\n"
	if out != want {
		t.Fatalf("got %q, want %q", out, want)
	}
}

func TestReportSaysWhatWasNotRun(t *testing.T) {
	out, err := run(t, false,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"NOT RUN: 7 cases\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Elapsed":0.1}`,
	)
	if err != nil || !strings.HasPrefix(out, "NOT RUN: 7 cases\nok  \tp\t") {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestReportNamesWhatPassed(t *testing.T) {
	out, err := run(t, true,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/sub","Elapsed":0.5}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.5}`,
		`{"Action":"pass","Package":"p","Elapsed":0.6}`,
	)
	if err != nil {
		t.Fatal(err)
	}
	if want := "--- PASS: TestA (0.50s)\nok  \tp\t0.60s\t2 tests\n"; !strings.HasPrefix(out, want) {
		t.Fatalf("got %q, want %q", out, want)
	}
}

func TestReportFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		says  string // in the output
		why   string // in the error
	}{
		{"a failed test", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"boom\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, "boom", "p"},
		{"a skipped test", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"pass","Package":"p","Test":"TestB"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"no database\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p"}`,
		}, "no database", "p.TestA"},
		{"a panic", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: nil map\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, "panic: nil map", "p"},
		{"a build that failed", []string{
			`{"Action":"build-output","ImportPath":"p","Output":"p.go:1: syntax error\n"}`,
			`{"Action":"build-fail","ImportPath":"p"}`,
			`{"Action":"start","Package":"p"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, "syntax error", "p"},
		{"a run that was cut off", []string{
			`{"Action":"start","Package":"p"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
		}, "", "no end"},
		{"nothing at all", nil, "", "no test ran"},
	} {
		out, err := run(t, false, c.lines...)
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got error %v, want %q", c.name, err, c.why)
		}
		if !strings.Contains(out, c.says) {
			t.Errorf("%s: got output %q, want %q in it", c.name, out, c.says)
		}
	}
}

// Whoever reads only the end of a long run finds why it failed there.
func TestReportRepeatsReasonsAtTheEnd(t *testing.T) {
	out, err := run(t, false,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    judge_test.go:12: message 7 came twice\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"        [123] a line of a process's log\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	if err == nil {
		t.Fatal("a failed test passes")
	}
	want := "FAIL\tp\t0.00s\t1 tests\nfailed: p.TestA: judge_test.go:12: message 7 came twice\nfailed: p\ntotal: 1 packages, 0 tests passed, 1 failed, 0 skipped\n"
	if !strings.HasSuffix(out, want) {
		t.Fatalf("got %q, want %q at its end", out, want)
	}
}

// A package that ends in the middle of a test has no failed test: it stands at the end all the
// same.
func TestReportRepeatsAPanicAtTheEnd(t *testing.T) {
	out, err := run(t, false,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Output":"fatal error: stack overflow\n"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	if err == nil {
		t.Fatal("a package that panicked passes")
	}
	want := "failed: p\nfailed: p: fatal error: stack overflow\ntotal: 1 packages, 1 tests passed, 0 failed, 0 skipped\n"
	if !strings.HasSuffix(out, want) {
		t.Fatalf("got %q, want %q at its end", out, want)
	}
}

// Logs of many processes do not take the place of why the test failed.
func TestReportRepeatsLittleOfOnePlace(t *testing.T) {
	lines := []string{`{"Action":"start","Package":"p"}`}
	say := func(output string) {
		lines = append(lines, fmt.Sprintf(`{"Action":"output","Package":"p","Test":"TestA","Output":"    %s\n"}`, output))
	}
	for i := range 30 {
		say(fmt.Sprintf("settle.go:7: %d has everything", i))
	}
	say("judge_test.go:12: message 7 came twice")
	for i := range 30 {
		say(fmt.Sprintf("process.go:21: --- router-%d", i))
	}
	out, err := run(t, false, append(lines, `{"Action":"fail","Package":"p","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`)...)
	if err == nil {
		t.Fatal("a failed test passes")
	}
	for want, n := range map[string]int{"failed: p.TestA: settle.go:7: ": 3, "failed: p.TestA: judge_test.go:12: message 7 came twice\n": 1, "failed: p.TestA: process.go:21: ": 3} {
		if got := strings.Count(out, want); got != n {
			t.Errorf("%q is there %d times, want %d, in %q", want, got, n, out)
		}
	}
}

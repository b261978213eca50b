package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// quick is the time in which a test is run together with others: a process costs more than it.
const quick = 200 * time.Millisecond

// baselineTimeout bounds one test of the unchanged package.
const baselineTimeout = 3 * time.Minute

// memory bounds a test process: some mutants make queues without end. In KiB of address space.
const memory = 12 << 20

// trial runs the tests of one mutated binary.
type trial struct {
	binary, dir, scratch string
	workers              int
	out                  io.Writer
	tests                []*test
	flags                []string // of every run
}

// noFailFiles has rapid's properties leave no files behind in the package's folder, which the next
// run would begin with.
const noFailFiles = "-rapid.nofailfile"

// test is one top-level test, example or fuzz target (with its seeds).
type test struct {
	name  string
	takes time.Duration
	sites map[int]bool // the sites that it reaches, by the id of their first mutant
}

// verdict says how a mutant ended.
type verdict int

const (
	survived  verdict = iota
	unreached         // no test runs the line
	killed
	timedOut // also killed
)

type result struct {
	*mutant
	verdict verdict
	by      string
}

// baseline runs each test alone, without a mutant: how long it takes and what it reaches. Tests
// that fail are left out, and named.
func (t *trial) baseline(ctx context.Context) error {
	if t.command(ctx, nil, noFailFiles, "-test.list", "^$").Run() == nil { // the package uses rapid
		t.flags = []string{noFailFiles}
	}
	text, err := t.command(ctx, nil, "-test.list", ".").Output()
	if err != nil {
		return fmt.Errorf("list of tests: %w", err)
	}
	var names []string
	for _, name := range strings.Fields(string(text)) {
		if !strings.HasPrefix(name, "Benchmark") {
			names = append(names, name)
		}
	}
	all := make([]*test, len(names))
	err = t.inParallel(ctx, len(names), func(i int) (err error) {
		all[i], err = t.record(ctx, names[i], i)
		return err
	})
	if err != nil {
		return err
	}
	for _, one := range all {
		if one != nil {
			t.tests = append(t.tests, one)
		}
	}
	slices.SortStableFunc(t.tests, func(a, b *test) int { return cmp.Compare(a.takes, b.takes) })
	if len(t.tests) == 0 {
		return errors.New("no test passes without a mutant")
	}
	return nil
}

func (t *trial) record(ctx context.Context, name string, i int) (*test, error) {
	file := filepath.Join(t.scratch, fmt.Sprintf("reached-%d", i))
	began := time.Now()
	text, err := t.command(ctx, []string{"PUSHMESH_MUTANT_RECORD=" + file}, "-test.run", "^"+name+"$", "-test.timeout", baselineTimeout.String()).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		fmt.Fprintf(t.out, "  %s fails without a mutant and is left out: %v: %s\n", name, err, lastLine(text))
		return nil, nil
	}
	one := &test{name: name, takes: time.Since(began), sites: map[int]bool{}}
	list, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, f := range strings.Fields(string(list)) {
		site, err := strconv.Atoi(f)
		if err != nil {
			return nil, fmt.Errorf("record of %s: %w", name, err)
		}
		one.sites[site] = true
	}
	return one, nil
}

func lastLine(text []byte) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[max(0, len(lines)-2)]
}

// command runs the binary in the package's folder, with its memory bounded.
func (t *trial) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	shell := slices.Concat([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memory), t.binary}, t.flags, args)
	cmd := exec.CommandContext(ctx, "sh", shell...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd
}

// inParallel calls f for 0 to n-1, as many at once as there are workers, and returns the first
// error.
func (t *trial) inParallel(ctx context.Context, n int, f func(int) error) error {
	next := make(chan int)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for range max(1, t.workers) {
		wg.Go(func() {
			for i := range next {
				if ctx.Err() == nil {
					errs[i] = f(i)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return cmp.Or(ctx.Err(), errors.Join(errs...))
}

// try runs each mutant against the tests that reach it.
func (t *trial) try(ctx context.Context, mutants []*mutant) ([]result, error) {
	results := make([]result, len(mutants))
	err := t.inParallel(ctx, len(mutants), func(i int) error {
		var err error
		results[i], err = t.one(ctx, mutants[i])
		return err
	})
	return results, err
}

func (t *trial) one(ctx context.Context, m *mutant) (result, error) {
	var together []*test
	var runs [][]*test
	for _, one := range t.tests {
		switch {
		case !one.sites[m.site.mutants[0].id]:
		case one.takes < quick:
			together = append(together, one)
		default:
			runs = append(runs, []*test{one})
		}
	}
	if len(together) > 0 {
		runs = slices.Insert(runs, 0, together)
	}
	if len(runs) == 0 {
		return result{m, unreached, ""}, nil
	}
	for _, tests := range runs {
		v, by, err := t.run(ctx, m, tests)
		if err != nil || v != survived {
			return result{m, v, by}, err
		}
	}
	return result{m, survived, ""}, nil
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func (t *trial) run(ctx context.Context, m *mutant, tests []*test) (verdict, string, error) {
	limit := 10 * time.Second
	var names []string
	for _, one := range tests {
		limit += 8 * one.takes
		names = append(names, one.name)
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := t.command(bounded, []string{"PUSHMESH_MUTANT=" + strconv.Itoa(m.id)},
		"-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$", "-test.timeout", (limit + time.Minute).String())
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return survived, "", ctx.Err()
	case bounded.Err() != nil:
		return timedOut, strings.Join(names, " "), nil
	case err == nil:
		return survived, "", nil
	}
	if found := failed.FindSubmatch(said.Bytes()); found != nil {
		return killed, string(found[1]), nil
	}
	return killed, "a crash", nil
}

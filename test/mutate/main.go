// Command mutate measures what the tests of a package notice. It makes many small faults (mutants)
// in the package's code, runs the package's tests against each, and prints the mutants that no test
// noticed, which are promises that no test holds up.
//
//	mutate [-n 200] [-seed 1] [-goal 90] [-json FILE] PACKAGE...
//
// All mutants of a package are compiled into one test binary, each behind a branch that an
// environment variable selects (the copy of the sources lies in a scratch folder and is given to
// the compiler as an overlay: the working tree is never changed). One recorded run of each test
// tells which mutants it reaches, so that a mutant is run against these tests only. A mutant counts
// as killed if a test fails, panics, or does not end in a generous multiple of its usual time.
//
// Mutants that behave like the original are named, with the reason, in equivalent.txt beside this
// file; they are not counted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// settings of one run of the command.
type settings struct {
	sample     int     // mutants per package; 0: all
	seed       uint64  // of the sample
	goal       float64 // percent of counted mutants that must be killed; 0: none
	json       string  // file for the figures; empty: none
	equivalent string  // file that names equivalent mutants
	workers    int     // test processes at once
}

func run(args []string, out io.Writer) error {
	var set settings
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	flags.IntVar(&set.sample, "n", 200, "mutants to try in each package; 0: all")
	flags.Uint64Var(&set.seed, "seed", 1, "seed of the sample")
	flags.Float64Var(&set.goal, "goal", 0, "fail unless this percentage of a package's mutants is killed")
	flags.StringVar(&set.json, "json", "", "write the figures to this file as JSON")
	flags.StringVar(&set.equivalent, "equivalent", "test/mutate/equivalent.txt", "file that names equivalent mutants")
	flags.IntVar(&set.workers, "workers", 2, "test processes at once")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("no package given: mutate ./services/edge/internal/feed")
	}
	known, err := readEquivalent(set.equivalent)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var all []score
	for _, pkg := range flags.Args() {
		s, err := mutatePackage(ctx, pkg, set, known, out)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		all = append(all, s)
	}
	return report(all, set, out)
}

// mutatePackage tries a sample of the mutants of one package.
func mutatePackage(ctx context.Context, pattern string, set settings, known *equivalents, out io.Writer) (score, error) {
	p, err := load(ctx, pattern)
	if err != nil {
		return score{}, err
	}
	mutants := p.mutants()
	scratch, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return score{}, err
	}
	defer os.RemoveAll(scratch) //nolint:errcheck // a scratch folder
	binary := filepath.Join(scratch, "mutated.test")
	if err := p.build(ctx, mutants, scratch, binary); err != nil {
		return score{}, err
	}
	t := &trial{binary: binary, dir: p.dir, scratch: scratch, workers: set.workers, out: out}
	if err := t.baseline(ctx); err != nil {
		return score{}, err
	}
	counted := known.without(p.path, mutants)
	chosen := sample(counted, set.sample, set.seed)
	results, err := t.try(ctx, chosen)
	if err != nil {
		return score{}, err
	}
	s := score{pkg: p.path, candidates: len(mutants), equivalent: len(mutants) - len(counted), results: results}
	s.print(out)
	return s, nil
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// equivalents are the mutants that behave like the original.
type equivalents struct{ labels map[string]bool }

// readEquivalent reads a list of them. A line is a label, as survivors are printed with -labels,
// then " # " and the reason. Lines that begin with # and empty ones are passed over.
func readEquivalent(name string) (*equivalents, error) {
	e := &equivalents{labels: map[string]bool{}}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " # ")
		if at < 0 || strings.TrimSpace(line[at+3:]) == "" {
			return nil, fmt.Errorf("%s:%d: no reason: a line is a label, \" # \", and why the mutant behaves like the original", name, n)
		}
		e.labels[strings.TrimSpace(line[:at])] = true
	}
	return e, lines.Err()
}

// without leaves out those of a package's mutants that are in the list.
func (e *equivalents) without(pkg string, all []*mutant) []*mutant {
	return slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool { return e.labels[m.label(pkg)] })
}

// sample is n of them (0: all), always the same for a seed, in their order.
func sample(all []*mutant, n int, seed uint64) []*mutant {
	if n <= 0 || n >= len(all) {
		return all
	}
	r := rand.New(rand.NewPCG(seed, 0))
	chosen := make([]*mutant, 0, n)
	for _, i := range r.Perm(len(all))[:n] {
		chosen = append(chosen, all[i])
	}
	slices.SortFunc(chosen, func(a, b *mutant) int { return a.id - b.id })
	return chosen
}

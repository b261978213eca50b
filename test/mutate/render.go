package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// selected is added to the package: which mutant applies, and a record of the sites that a run
// reaches. Names begin with Ω, which nothing else in the workspace does.
const selected = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	Ωmutant, _ = strconv.Atoi(os.Getenv("PUSHMESH_MUTANT"))
	Ωrecord    = Ωopen(os.Getenv("PUSHMESH_MUTANT_RECORD"))
	Ωreached   [%d]atomic.Bool
)

func Ωopen(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

func Ωat(site int) int {
	if Ωrecord != nil && !Ωreached[site].Swap(true) {
		_, _ = Ωrecord.WriteString(strconv.Itoa(site) + "\n")
	}
	return Ωmutant
}
`

// build compiles the package's tests with all mutants in it.
func (s *source) build(ctx context.Context, mutants []*mutant, scratch, binary string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	put := func(target, text string) error {
		name := filepath.Join(scratch, fmt.Sprintf("%d.go", len(overlay.Replace)))
		overlay.Replace[target] = name
		return os.WriteFile(name, []byte(text), 0o600)
	}
	for _, f := range s.files {
		if err := put(f.name, render(f, sitesOf(filepath.Base(f.name), mutants))); err != nil {
			return err
		}
	}
	if err := put(filepath.Join(s.dir, "mutate_selected.go"), fmt.Sprintf(selected, s.name, len(mutants)+1)); err != nil {
		return err
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	list := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", list, "-o", binary, s.path)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the mutated package does not compile: %w\n%s", err, text)
	}
	return nil
}

// sitesOf are the outermost sites of a file, each with what lies in it.
func sitesOf(file string, mutants []*mutant) []*site {
	var all []*site
	for _, m := range mutants {
		if m.file == file && m.site.mutants[0] == m {
			m.site.inner = nil
			all = append(all, m.site)
		}
	}
	slices.SortFunc(all, func(a, b *site) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	var top, open []*site
	for _, s := range all {
		for len(open) > 0 && open[len(open)-1].to <= s.from {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			top = append(top, s)
		} else {
			outer := open[len(open)-1]
			outer.inner = append(outer.inner, s)
		}
		open = append(open, s)
	}
	return top
}

func render(f *file, sites []*site) string {
	var b bytes.Buffer
	between(&b, f.text, 0, len(f.text), sites)
	return b.String()
}

func between(b *bytes.Buffer, text []byte, from, to int, sites []*site) {
	for _, s := range sites {
		b.Write(text[from:s.from])
		s.render(b, text)
		from = s.to
	}
	b.Write(text[from:to])
}

// render writes the site so that each of its mutants can be selected; line numbers stay what they
// were.
func (s *site) render(b *bytes.Buffer, text []byte) {
	if s.typ == "" {
		s.renderStatement(b, text)
		return
	}
	fmt.Fprintf(b, "func() %s { switch Ωat(%d) {", s.typ, s.mutants[0].id)
	for _, m := range s.mutants { // a line each: a comment may end the text
		fmt.Fprintf(b, " case %d: return %s\n", m.id, m.is)
	}
	b.WriteString(" }; return ")
	between(b, text, s.from, s.to, s.inner)
	b.WriteString(" }()")
}

// renderStatement writes branches of an if, in which continue and break mean what they did.
func (s *site) renderStatement(b *bytes.Buffer, text []byte) {
	fmt.Fprintf(b, "if Ωx := Ωat(%d); false {", s.mutants[0].id)
	for _, m := range s.mutants {
		fmt.Fprintf(b, " } else if Ωx == %d { %s\n", m.id, m.is)
	}
	b.WriteString(" } else { ")
	between(b, text, s.from, s.to, s.inner)
	b.WriteString(" }")
}

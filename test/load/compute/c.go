package compute

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// variant is one way of compiling the same C.
type variant struct {
	name, path string
}

// compile makes a program of each compiler that is installed and each set of flags. missing says
// why there is none.
func (b *bench) compile(ctx context.Context, source string, flags ...string) (all []variant, missing string) {
	for _, compiler := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(compiler); err != nil {
			continue
		}
		for _, f := range flags {
			v := variant{name: compiler + " " + f, path: filepath.Join(string(b.Dir), fmt.Sprintf("%s-%s-%d", source, compiler, len(all)))}
			args := append(strings.Fields(f), "-o", v.path, filepath.Join(b.sources, source+".c"), "-lm")
			if out, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
				missing += fmt.Sprintf("%s does not compile: %.100s; ", v.name, out)
				continue
			}
			all = append(all, v)
		}
	}
	if len(all) == 0 && missing == "" {
		missing = "no C compiler is installed"
	}
	return all, missing
}

// lines runs a program and gives the words of each line of its output.
func (v variant) lines(ctx context.Context, args ...string) ([][]string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, v.path, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %.200s", v.name, err, said.String())
	}
	var all [][]string
	for line := range strings.Lines(string(out)) {
		all = append(all, strings.Fields(line))
	}
	return all, nil
}

// numberAt is a word of a line.
func numberAt(line []string, i int) (float64, error) {
	if i >= len(line) {
		return 0, fmt.Errorf("a line of %d words: %q", len(line), line)
	}
	return strconv.ParseFloat(line[i], 64)
}

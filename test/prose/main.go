// Command prose checks how text is laid out in this repository: comments in Go files end before column 100, and Markdown
// has one sentence a line. With -w it lays out what is not so. Without paths it takes all files that git knows.
//
//	go run ./test/prose [-w] [FILE...]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	write := flag.Bool("w", false, "lay out the files instead of reporting them")
	flag.Parse()
	if err := run(flag.Args(), *write); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

// run reports the lines that are too long or hold several sentences, or mends them.
func run(paths []string, write bool) error {
	if len(paths) == 0 {
		out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*.md").Output()
		if err != nil {
			return fmt.Errorf("list files: %w", err)
		}
		paths = strings.Fields(string(out))
	}
	wrong := 0
	for _, p := range paths {
		n, err := file(p, write)
		if err != nil {
			return err
		}
		wrong += n
	}
	if wrong > 0 && !write {
		return fmt.Errorf("%d lines to lay out anew: go run ./test/prose -w", wrong)
	}
	return nil
}

// file checks one file and returns how many of its lines are not as they should be.
func file(path string, write bool) (int, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) { // deleted, and git does not know yet
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var laid []byte
	switch {
	case strings.HasSuffix(path, ".md"):
		laid = markdown(text)
	case bytes.Contains(text, []byte("// Code generated ")):
		return 0, nil
	default:
		laid, err = comments(path, text)
	}
	if err != nil || bytes.Equal(text, laid) {
		return 0, err
	}
	if write {
		return 1, os.WriteFile(path, laid, 0o600)
	}
	return report(path, text, laid), nil
}

// report prints each line of text that laid doesn't have.
func report(path string, text, laid []byte) (n int) {
	have := map[string]bool{}
	for l := range strings.Lines(string(laid)) {
		have[l] = true
	}
	at := 0
	for l := range strings.Lines(string(text)) {
		at++
		if !have[l] {
			n++
			fmt.Printf("%s:%d: %s\n", path, at, strings.TrimSpace(l))
		}
	}
	return max(n, 1)
}

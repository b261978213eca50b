package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pushmesh/pushmesh/test/helm"
)

// block of a page, with its language.
type block struct{ language, text string }

// fromNothing are the commands and files that docs/kubernetes.md begins with, in their order.
func fromNothing() ([]block, error) {
	text, err := os.ReadFile(filepath.Join(helm.Root(), "docs", "kubernetes.md"))
	if err != nil {
		return nil, err
	}
	_, rest, begins := strings.Cut(string(text), "\n## From nothing\n")
	section, _, ends := strings.Cut(rest, "\n## ")
	if !begins || !ends {
		return nil, fmt.Errorf("docs/kubernetes.md has no section From nothing")
	}
	var all []block
	for {
		_, rest, found := strings.Cut(section, "\n```")
		if !found {
			return all, nil
		}
		language, rest, _ := strings.Cut(rest, "\n")
		body, after, closed := strings.Cut(rest, "\n```\n")
		if !closed || language == "" {
			return nil, fmt.Errorf("a block of docs/kubernetes.md has no end, or no language")
		}
		all, section = append(all, block{language, body + "\n"}), after
	}
}

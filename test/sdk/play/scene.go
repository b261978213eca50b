// Package play has SDKs play scenes against a scripted edge. test/sdk/README.md has the language of
// scenes and the line protocol of the program that is played with.
package play

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Scene is a parsed file.
type Scene struct {
	Name       string
	Rules      []string // of docs/sdk.md
	Needs      []string // what the SDK must have
	Transports []string // none: all
	edges      []string
	steps      []step
}

// step is one line; run plays it.
type step struct {
	line int
	text string
	run  func(*stage) error
}

// Load parses every scene of a folder, in the order of their names.
func Load(files fs.FS) ([]*Scene, error) {
	names, err := fs.Glob(files, "*.scene")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []*Scene
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		s, err := Parse(strings.TrimSuffix(path.Base(name), ".scene"), text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Parse reads one scene.
func Parse(name string, text []byte) (*Scene, error) {
	s := &Scene{Name: name, edges: []string{"edge"}}
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		switch {
		case line == "":
		case strings.HasPrefix(line, "#"):
			s.header(strings.TrimSpace(line[1:]))
		default:
			run, err := s.parse(line)
			if err != nil {
				return nil, fmt.Errorf("%s.scene:%d: %w: %s", name, n, err, line)
			}
			s.steps = append(s.steps, step{n, line, run})
		}
	}
	if len(s.steps) == 0 || len(s.Rules) == 0 {
		return nil, fmt.Errorf("%s.scene: it needs steps, and a line \"# Rules:\"", name)
	}
	return s, in.Err()
}

func (sc *Scene) header(line string) {
	key, value, _ := strings.Cut(line, ":")
	list := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
	switch key {
	case "Rules":
		sc.Rules = list
	case "Needs":
		sc.Needs = list
	case "Transports":
		sc.Transports = list
	case "Edges":
		sc.edges = list
	}
}

// object takes the JSON object out of a line: what is before it, the object, what is behind.
func object(line string) (before string, m map[string]any, after string, err error) {
	at := strings.IndexByte(line, '{')
	if at < 0 {
		return line, map[string]any{}, "", nil
	}
	d := json.NewDecoder(strings.NewReader(line[at:]))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return "", nil, "", err
	}
	return strings.TrimSpace(line[:at]), m, strings.TrimSpace(line[at+int(d.InputOffset()):]), nil
}

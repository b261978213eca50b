// Command table plays all scenes with several SDKs, and writes what came of each into a page:
// scripts/sdk-table.
//
//	table -page README.md 'NAME PROGRAM ARGS…' …
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/pushmesh/pushmesh/test/sdk/play"
	"github.com/pushmesh/pushmesh/test/sdk/scenes"
)

// The table stands between these lines of the page.
const (
	begins = "<!-- scripts/sdk-table writes what follows -->\n"
	ends   = "<!-- scripts/sdk-table has written what comes before -->\n"
)

var transports = []string{"tcp", "websocket"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sdk-table:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	page := flags.String("page", "", "the page with the table")
	parallel := flags.Int("parallel", 4, "scenes at a time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := play.Load(scenes.Files)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	var columns []column
	var failed []error
	for _, arg := range flags.Args() {
		words := strings.Fields(arg)
		if len(words) < 2 {
			return fmt.Errorf("%q is not NAME PROGRAM ARGS", arg)
		}
		results := play.Suite{Scenes: all, Transports: transports, Program: words[1:], Parallel: *parallel}.Play()
		for _, r := range results {
			if r.Err != nil {
				failed = append(failed, fmt.Errorf("%s, %s by %s: %w", words[0], r.Scene.Name, r.Transport, r.Err))
			}
		}
		columns = append(columns, columnsOf(words[0], results)...)
	}
	if len(columns) == 0 {
		return errors.New("no SDK was named: table -page README.md 'NAME PROGRAM ARGS…' …")
	}
	changed, err := replace(string(text), table(all, columns))
	if err != nil {
		return fmt.Errorf("%s: %w", *page, err)
	}
	// A table with what failed is no help to anybody.
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	return os.WriteFile(*page, []byte(changed), 0o644)
}

// column is what came of the scenes of one SDK by one transport.
type column struct {
	title string
	cells map[string]string // by the scenes' names
}

// columnsOf an SDK: of the transports that it has.
func columnsOf(name string, results []play.Result) (all []column) {
	for _, transport := range transports {
		c := column{title: name + ", " + map[string]string{"tcp": "TCP", "websocket": "WebSocket"}[transport], cells: map[string]string{}}
		has := false
		for _, r := range results {
			if r.Transport != transport {
				continue
			}
			has = has || r.Without != transport
			c.cells[r.Scene.Name] = cell(r)
		}
		if has {
			all = append(all, c)
		}
	}
	return all
}

func cell(r play.Result) string {
	switch {
	case r.Err != nil:
		return "failed"
	case r.Without != "":
		return "without " + r.Without
	}
	return "passed"
}

// table is in Markdown. A cell is empty where a scene is not of the transport.
func table(all []*play.Scene, columns []column) string {
	var out strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	titles := []string{"scene", "rules"}
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	line(titles...)
	line(slices.Repeat([]string{"---"}, len(titles))...)
	for _, s := range all {
		row := []string{"`" + s.Name + "`", strings.Join(s.Rules, ", ")}
		for _, c := range columns {
			row = append(row, c.cells[s.Name])
		}
		line(row...)
	}
	return out.String()
}

// cut is what stands before the table of a page, the table, and what stands behind it.
func cut(page string) (before, table, after string, err error) {
	before, rest, opened := strings.Cut(page, begins)
	table, after, closed := strings.Cut(rest, ends)
	if !opened || !closed {
		return "", "", "", fmt.Errorf("it has no lines %q and %q, between which the table stands", begins, ends)
	}
	return before + begins, table, ends + after, nil
}

func replace(page, table string) (string, error) {
	before, _, after, err := cut(page)
	return before + "\n" + table + "\n" + after, err
}

// Command sdk plays scenes with an SDK: a program that joins it to a line protocol is started once
// for each scene, and a scripted edge looks at what its client does. README.md beside it says how
// both are written.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/pushmesh/pushmesh/test/sdk/play"
	"github.com/pushmesh/pushmesh/test/sdk/scenes"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sdk:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sdk", flag.ContinueOnError)
	part := flags.String("run", "", "play only scenes whose name holds this")
	transport := flags.String("transport", "", "play by tcp or websocket alone")
	parallel := flags.Int("parallel", 4, "scenes at a time")
	verbose := flags.Bool("v", false, "print the lines and frames of each scene")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("name the program that joins the SDK to the line protocol: sdk [flags] -- PROGRAM ARGS")
	}
	all, err := play.Load(scenes.Files)
	if err != nil {
		return err
	}
	suite := play.Suite{Scenes: all, Transports: []string{"tcp", "websocket"}, Program: flags.Args(), Parallel: *parallel, Run: *part}
	if *transport != "" {
		suite.Transports = []string{*transport}
	}
	if *verbose {
		suite.Each = func(r play.Result) {
			_, _ = fmt.Fprintf(out, "== %s by %s\n", r.Scene.Name, r.Transport)
			for _, line := range r.Story {
				_, _ = fmt.Fprintln(out, line)
			}
		}
	}
	if failed := play.Table(out, suite.Play()); failed > 0 {
		return fmt.Errorf("%d scenes failed", failed)
	}
	return nil
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
)

// spinFlag has this program be loops that do nothing but spin, a thread each: what a machine makes
// of any work beside an edge, under the same priority. What a compute node costs beyond that is its
// own.
const spinFlag = "-spin"

// startSpinner starts as many loops as a node has workers; by is what they are started by.
func (b *bench) startSpinner(loops int, by []string) (start, stop func(context.Context) error, end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	command := append(append([]string{}, by...), self, spinFlag, strconv.Itoa(loops))
	p, _, err := b.dir.StartOrdered("spinner", command[0], command[1:]...)
	if err != nil {
		return nil, nil, nil, err
	}
	return orders(p, "on", nil), orders(p, "off", nil), p.End, nil
}

// spinner is that process: "on" begins, "off" ends.
func spinner(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s LOOPS", spinFlag)
	}
	loops, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	var on atomic.Bool
	var under sync.WaitGroup
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch lines.Text() {
		case "on":
			on.Store(true)
			for range loops {
				under.Go(func() {
					for on.Load() { // that is all
					}
				})
			}
		case "off":
			on.Store(false)
			under.Wait()
		}
		if _, err := fmt.Fprintln(out, "ok"); err != nil {
			return err
		}
	}
	on.Store(false)
	under.Wait()
	return nil
}

package play

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Suite is what is to be played with a program.
type Suite struct {
	Scenes     []*Scene
	Transports []string
	Program    []string
	Parallel   int
	// Run is part of the names of the scenes that are played.
	Run string
	// Each is told of every result, in no order; nil: nobody is.
	Each func(Result)
}

// Play plays all scenes. Results are in the order of scenes and transports.
func (su Suite) Play() []Result {
	var results []*Result
	var wg sync.WaitGroup
	var told sync.Mutex
	lacked := map[string]bool{} // transports that the SDK does not have
	room := make(chan struct{}, max(su.Parallel, 1))
	for _, sc := range su.Scenes {
		for _, transport := range su.Transports {
			if !strings.Contains(sc.Name, su.Run) || len(sc.Transports) > 0 && !slices.Contains(sc.Transports, transport) {
				continue
			}
			r := &Result{}
			results = append(results, r)
			room <- struct{}{}
			told.Lock()
			lacks := lacked[transport]
			told.Unlock()
			if lacks {
				<-room
				*r = Result{Scene: sc, Transport: transport, Without: transport}
				continue
			}
			wg.Go(func() {
				defer func() { <-room }()
				*r = play(sc, transport, su.Program)
				told.Lock()
				defer told.Unlock()
				lacked[transport] = r.Without == transport
				if su.Each != nil {
					su.Each(*r)
				}
			})
		}
	}
	wg.Wait()
	all := make([]Result, len(results))
	for i, r := range results {
		all[i] = *r
	}
	return all
}

// Table writes what came of each scene, and returns how many failed.
func Table(w io.Writer, results []Result) (failed int) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	counts, lacked := map[string]int{}, map[string]bool{}
	for _, r := range results {
		word := "passed"
		switch {
		case r.Err != nil:
			word = "failed"
		case r.Without != "":
			word = "without"
		}
		counts[word]++
		if r.Without == r.Transport && word == "without" { // one line for all
			if !lacked[r.Transport] {
				_, _ = fmt.Fprintf(tw, "every scene\t%s\twithout\t\t\n", r.Transport)
			}
			lacked[r.Transport] = true
			continue
		}
		why := r.Without
		if r.Err != nil {
			why = strings.ReplaceAll(r.Err.Error(), "\n", " ")
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%4.1f s\t%s\n", r.Scene.Name, r.Transport, word, r.Took.Seconds(), why)
	}
	_ = tw.Flush() // a writer that fails is the caller's
	_, _ = fmt.Fprintf(w, "%d passed, %d failed, %d without\n", counts["passed"], counts["failed"], counts["without"])
	return counts["failed"]
}

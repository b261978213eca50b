package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// pod is what is known of one, of what the API server tells.
type pod struct {
	Metadata struct {
		Name                       string
		Labels                     map[string]string
		DeletionTimestamp          *time.Time
		DeletionGracePeriodSeconds int
	}
	Status struct{ ContainerStatuses []containerStatus }
}

type containerStatus struct {
	State struct{ Terminated *struct{ ExitCode int } }
}

// watch follows the release's pods.
type watch struct {
	mu sync.Mutex
	// gone are the tiers of pods that went.
	gone map[string]int
	// asked is who was asked to go; at the very end a pod's grace is 0.
	asked map[string]asked
	// pods is the folder of the pods' logs, which go with them.
	pods   string
	faults []error
	cancel context.CancelFunc
	ended  chan error
}

// asked says when a pod was asked to go, and how long it has.
type asked struct {
	at    time.Time
	grace time.Duration
	log   *os.File // nil: there is none
}

func (r *release) look(ctx context.Context) (*watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{gone: map[string]int{}, asked: map[string]asked{}, pods: filepath.Join(r.folder, "pods"), cancel: cancel, ended: make(chan error, 1)}
	command := exec.CommandContext(ctx, "bash", "-c", "exec kubectl -n prod get pods -l app.kubernetes.io/part-of=pushmesh --watch --output-watch-events -o json")
	command.Env = r.env
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		var err error
		for d := json.NewDecoder(out); err == nil; {
			var e struct {
				Type   string
				Object pod
			}
			if err = d.Decode(&e); err != nil {
				break
			}
			name := e.Object.Metadata.Name
			at, grace := e.Object.Metadata.DeletionTimestamp, time.Duration(e.Object.Metadata.DeletionGracePeriodSeconds)*time.Second
			if _, known := w.asked[name]; !known && at != nil {
				w.asked[name] = asked{at.Add(-grace), grace, w.log(e.Object)}
			}
			if e.Type == "DELETED" {
				w.deleted(e.Object, w.asked[name])
			}
		}
		_ = command.Wait() // it was cancelled, or err says more
		if ctx.Err() != nil {
			err = nil
		}
		w.ended <- err
	}()
	return w, nil
}

// log opens the log of a pod that goes: it can be read until it is closed.
func (w *watch) log(p pod) *os.File {
	paths, _ := filepath.Glob(filepath.Join(w.pods, "prod_"+p.Metadata.Name+"_*", "*", "*.log"))
	if len(paths) == 0 {
		return nil
	}
	f, err := os.Open(paths[len(paths)-1])
	if err != nil {
		return nil
	}
	return f
}

// deleted checks how a pod went: by itself, and within its time.
func (w *watch) deleted(p pod, asked asked) {
	tier := p.Metadata.Labels["app.kubernetes.io/component"]
	if _, ok := map[string]bool{"edge": true, "router": true, "store": true, "compute": true}[tier]; !ok {
		return // of a Job
	}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: "+format, append([]any{p.Metadata.Name}, args...)...))
	}
	took := time.Since(asked.at)
	if asked.at.IsZero() {
		fault("went without having been asked to")
	} else if took > asked.grace+time.Second { // the API server's time has whole seconds
		fault("took %.1f s, with %v of grace", took.Seconds(), asked.grace)
	}
	exit := -1
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			exit = s.State.Terminated.ExitCode
		}
	}
	if exit != 0 {
		fault("ended with %d", exit)
	}
	if asked.log != nil {
		text, err := io.ReadAll(asked.log)
		if len(faults) > 0 {
			faults = append(faults, fmt.Errorf("it said:\n%s", text[max(len(text)-3000, 0):]), err)
		}
		_ = asked.log.Close() // only read
	}
	say("%s went after %.1f s, of %v that it has", p.Metadata.Name, took.Seconds(), asked.grace)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[tier]++
	w.faults = append(w.faults, faults...)
}

// mark is how many went up to now, for went.
func (w *watch) mark() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.gone)
}

// went waits until so many pods of each tier went since a mark, and checks that they went well, and
// no others.
func (w *watch) went(ctx context.Context, mark, want map[string]int) error {
	if err := await(ctx, "old pods are gone", func(context.Context) error {
		gone := w.mark()
		for tier, n := range want {
			if gone[tier]-mark[tier] < n {
				return fmt.Errorf("%s: %d went, not %d", tier, gone[tier]-mark[tier], n)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for tier, n := range w.gone {
		if n -= mark[tier]; n != want[tier] {
			w.faults = append(w.faults, fmt.Errorf("%s: %d pods went, not %d", tier, n, want[tier]))
		}
	}
	return errors.Join(w.faults...)
}

// end stops following. That pods went well at the end is checked, too.
func (w *watch) end() error {
	w.cancel()
	err := <-w.ended
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(append(w.faults, err)...)
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/test/load/disk"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/procfs"
)

// watch takes the CPU that everybody needs for a load.
type watch struct {
	who   []consumer
	began []time.Duration

	mu             sync.Mutex
	checkpointTook time.Duration
	err            error
}

// consumer of CPU: one or several processes.
type consumer struct {
	name string
	pids []int
}

func (b *bench) watch(m *local.Mesh) (*watch, error) {
	postgres, err := b.db.PIDs()
	if err != nil {
		return nil, err
	}
	who := []consumer{{"generator", []int{self()}}, {"router", []int{m.Router.PID()}}, {"store", []int{m.Store.PID()}}, {"postgres", postgres}}
	if len(m.Edges) > 0 {
		who = append(who, consumer{"edge", m.PIDs()}, consumer{"nats", []int{m.NATS.PID()}})
	}
	return watching(who...)
}

func watching(who ...consumer) (w *watch, err error) {
	w = &watch{who: who}
	w.began, err = w.now()
	return w, err
}

func (w *watch) now() ([]time.Duration, error) {
	all := make([]time.Duration, len(w.who))
	for i, c := range w.who {
		for _, pid := range c.pids {
			used, err := procfs.CPU(pid)
			if err != nil {
				if c.name == "postgres" {
					// a connection of the pool that was closed meanwhile: its share of the load is
					// nearly nothing
					continue
				}
				return nil, err
			}
			all[i] += used
		}
	}
	return all, nil
}

// end says what each used for each of n messages.
func (w *watch) end(n int64) (string, error) {
	now, err := w.now()
	if err != nil {
		return "", err
	}
	var said []string
	var sum float64
	for i, c := range w.who {
		each := (now[i] - w.began[i]).Seconds() * 1e6 / float64(max(n, 1))
		sum += each
		said = append(said, fmt.Sprintf("%s %.2f", c.name, each))
	}
	return fmt.Sprintf("%s = %.2f", strings.Join(said, " + "), sum), nil
}

// checkpoint has the server make one, and takes the time.
func (w *watch) checkpoint(ctx context.Context, d *disk.Postgres) {
	began := time.Now()
	err := d.Checkpoint(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkpointTook, w.err = time.Since(began), err
}

// fault of the checkpoint; one that was not made is one.
func (w *watch) fault() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.checkpointTook == 0 {
		return fmt.Errorf("the checkpoint was not done before the load ended")
	}
	return w.err
}

const profileSeconds = 5

// profileAll profiles router, store and this program while a load runs; without -profile it does
// nothing.
func (b *bench) profileAll(ctx context.Context, name string, m *local.Mesh) <-chan error {
	done := make(chan error, 1)
	if b.profile == "" {
		done <- nil
		return done
	}
	go func() {
		errs := make(chan error, 3)
		time.Sleep(time.Second) // the load is at its height
		for _, p := range []*local.Process{m.Router, m.Store} {
			go func() { errs <- b.save(ctx, p, name) }()
		}
		go func() { errs <- b.own(name) }()
		var err error
		for range cap(errs) {
			if e := <-errs; e != nil {
				err = e
			}
		}
		done <- err
	}()
	return done
}

func (b *bench) save(ctx context.Context, p *local.Process, name string) error {
	body, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.profile, name+"."+p.Name+".pprof"), body, 0o644)
}

func (b *bench) own(name string) error {
	f, err := os.Create(filepath.Join(b.profile, name+".generator.pprof"))
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	time.Sleep(profileSeconds * time.Second)
	pprof.StopCPUProfile()
	return f.Close()
}

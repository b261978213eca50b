package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/test/load/procfs"
)

// consumer of CPU: one or several processes.
type consumer struct {
	name string
	pids []int
}

// used takes what everybody uses of the CPU from now on.
type used struct {
	who   []consumer
	began []time.Duration
	at    time.Time
}

func (b *bench) using() (*used, error) {
	postgres, err := b.db.PIDs()
	if err != nil {
		return nil, err
	}
	return using(
		consumer{"generator", []int{os.Getpid()}}, consumer{"router", []int{b.mesh.Router.PID()}}, consumer{"edge", b.mesh.PIDs()},
		consumer{"store", []int{b.mesh.Store.PID()}}, consumer{"postgres", postgres})
}

func using(who ...consumer) (*used, error) {
	u := &used{who: who, at: time.Now()}
	for _, c := range who {
		n, err := c.cpu()
		if err != nil {
			return nil, err
		}
		u.began = append(u.began, n)
	}
	return u, nil
}

// cpu of a consumer. A connection of Postgres may have been closed meanwhile: its share is nearly
// nothing.
func (c consumer) cpu() (sum time.Duration, err error) {
	for _, pid := range c.pids {
		n, err := procfs.CPU(pid)
		if err != nil && c.name != "postgres" {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// each says what one of n operations took of everybody, in µs, and how busy the generator was.
func (u *used) each(n int) (string, error) {
	span := time.Since(u.at)
	var said []string
	busy := 0.0
	for i, c := range u.who {
		now, err := c.cpu()
		if err != nil {
			return "", err
		}
		ran := now - u.began[i]
		if i == 0 {
			busy = ran.Seconds() / span.Seconds()
		}
		said = append(said, fmt.Sprintf("%s %.0f", c.name, ran.Seconds()*1e6/float64(max(n, 1))))
	}
	return fmt.Sprintf("CPU µs each: %s; the generator took %.0f %% of a core", strings.Join(said, ", "), 100*busy), nil
}

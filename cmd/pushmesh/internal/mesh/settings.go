// Package mesh runs a mesh of separate processes on loopback: a real nats-server, a real Postgres, a store, a compute, two
// routers and two edges. It is for development and for tests that kill processes.
package mesh

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Settings of a mesh. Zero values mean the default given.
type Settings struct {
	Bin        string // folder of the binaries edge, router, compute and store: bin
	NATSServer string // path or name of nats-server: nats-server
	Postgres   string // URL of a database; empty: a private server is started
	Dir        string // folder for logs and the state file: data/mesh

	FreePorts bool // instead of API.md's and those 10 higher
	Restart   bool // start again what died, after RestartAfter

	ProducerRate     int // 100,000
	ProducerInFlight int // 10,000
	LogLevel         string

	Ready time.Duration // how long all may take to be ready: 60 s
	Grace time.Duration // how long each may take to stop before it is killed: 20 s
}

func (s Settings) withDefaults() Settings {
	set(&s.Bin, "bin")
	set(&s.NATSServer, "nats-server")
	set(&s.Dir, "data/mesh")
	set(&s.ProducerRate, 100_000)
	set(&s.ProducerInFlight, 10_000)
	set(&s.LogLevel, "info")
	set(&s.Ready, time.Minute)
	set(&s.Grace, 20*time.Second)
	return s
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Check reports every binary that can't be found.
func (s Settings) Check() error {
	s = s.withDefaults()
	var errs []error
	if _, err := exec.LookPath(s.NATSServer); err != nil {
		errs = append(errs, fmt.Errorf("--nats-server: %w", err))
	}
	for _, tier := range []string{"edge", "router", "compute", "store"} {
		if _, err := exec.LookPath(s.binary(tier)); err != nil {
			errs = append(errs, fmt.Errorf("--bin: %w (make build)", err))
		}
	}
	return errors.Join(errs...)
}

// binary is the absolute path of a tier's binary: without it a name without a slash would be looked up on the PATH.
func (s Settings) binary(tier string) string {
	path := filepath.Join(s.Bin, tier)
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

const host = "127.0.0.1"

// ports hands out addresses: fixed ones, or free ones that are told apart because all are held until the last is known.
type ports struct {
	free bool
	held []net.Listener
}

func (p *ports) addr(fixed int) (string, error) {
	if !p.free {
		return net.JoinHostPort(host, strconv.Itoa(fixed)), nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("free port: %w", err)
	}
	p.held = append(p.held, l)
	return l.Addr().String(), nil
}

func (p *ports) release() error {
	var errs []error
	for _, l := range p.held {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

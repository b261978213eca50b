// Package mesh runs a mesh of separate processes on loopback: a real nats-server, a real Postgres,
// a store, a compute, two routers and two edges. It is for development and for tests that kill
// processes.
package mesh

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"
)

// Settings of a mesh. Zero values mean the default given.
type Settings struct {
	Bin        string // folder of the binaries edge, router, compute and store: bin
	NATSServer string // path or name of nats-server: nats-server
	// NATSServers is how many there are; several are a cluster: 1.
	NATSServers int
	Postgres    string // URL of a database; empty: a private server is started
	Dir         string // folder for logs and the state file: data/mesh

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
	set(&s.NATSServers, 1)
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

// Check reports every binary that can't be found, and what can't be laid out.
func (s Settings) Check() error {
	s = s.withDefaults()
	var errs []error
	if _, err := exec.LookPath(s.NATSServer); err != nil {
		errs = append(errs, fmt.Errorf("--nats-server: %w", err))
	}
	if s.NATSServers < 1 || s.NATSServers > maxNATSServers {
		errs = append(errs, fmt.Errorf("--nats-servers: %d; 1 to %d", s.NATSServers, maxNATSServers))
	}
	for _, tier := range []string{"edge", "router", "compute", "store"} {
		if _, err := exec.LookPath(s.binary(tier)); err != nil {
			errs = append(errs, fmt.Errorf("--bin: %w (make build)", err))
		}
	}
	return errors.Join(errs...)
}

// maxNATSServers keeps fixed ports apart.
const maxNATSServers = 7

// binary is the absolute path of a program: without it a name without a slash would be looked up on
// the PATH. nats-server is where the settings say.
func (s Settings) binary(program string) string {
	if program == "nats-server" {
		return s.NATSServer
	}
	path := filepath.Join(s.Bin, program)
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

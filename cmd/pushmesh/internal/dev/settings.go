// Package dev runs a whole mesh in one process: an embedded NATS server, a SQLite file, and all
// four tiers with the same code as in production between them.
package dev

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/services/edge"
)

// Settings of a mesh in one process. Zero values mean the default given, but an address that is
// empty means a free port.
type Settings struct {
	Data string // folder of the database, ./data

	Edge, EdgeHTTP       string
	Router, RouterHTTP   string
	Compute, ComputeHTTP string
	Store, StoreHTTP     string
	Playground           string // address of the page

	NoPlayground bool // serve no page, and make no namespaces for it

	// WebSocketOrigins are the pages that may connect beside the playground, as the edge's flag has
	// them; none: those of the edge's host.
	WebSocketOrigins []string

	// ProducerRate and ProducerInFlight are what one producer may do: generous, for one machine has
	// no neighbours to protect.
	ProducerRate     int // 100,000 messages a second
	ProducerInFlight int // 10,000 unanswered

	Loops    int           // event loops of the edge; 0: the edge's default
	Poller   string        // of the edge; "": its default
	LogLevel string        // warn
	Grace    time.Duration // 15 s for a planned stop
}

// Host is where everything listens: a mesh for development is for this machine alone.
const Host = "127.0.0.1"

// Ports fills every empty address with API.md's numbers counted from the edge's: first, first+1, …
// and first+80, … for HTTP, of which the last is the playground's. 0 means free ports.
func (s *Settings) Ports(first int) {
	for i, addr := range []*string{&s.Edge, &s.Router, &s.Compute, &s.Store} {
		fill(addr, first, i)
	}
	for i, addr := range []*string{&s.EdgeHTTP, &s.RouterHTTP, &s.ComputeHTTP, &s.StoreHTTP, &s.Playground} {
		fill(addr, first, 80+i)
	}
}

func fill(addr *string, first, offset int) {
	if *addr != "" {
		return
	}
	port := 0
	if first > 0 {
		port = first + offset
	}
	*addr = net.JoinHostPort(Host, strconv.Itoa(port))
}

// withDefaults is s with every zero value filled in.
func (s Settings) withDefaults() Settings {
	s.Ports(0)
	if s.Data == "" {
		s.Data = "data"
	}
	if s.ProducerRate == 0 {
		s.ProducerRate = 100_000
	}
	if s.ProducerInFlight == 0 {
		s.ProducerInFlight = 10_000
	}
	if s.LogLevel == "" {
		s.LogLevel = "warn"
	}
	if s.Grace == 0 {
		s.Grace = 15 * time.Second
	}
	return s
}

// Check reports every fault.
func (s *Settings) Check() error {
	var errs []error
	for flag, addr := range map[string]string{
		"edge-listen": s.Edge, "edge-http": s.EdgeHTTP, "router-listen": s.Router, "router-http": s.RouterHTTP,
		"compute-listen": s.Compute, "compute-http": s.ComputeHTTP, "store-listen": s.Store, "store-http": s.StoreHTTP,
		"playground-listen": s.Playground,
	} {
		if _, _, err := net.SplitHostPort(addr); addr != "" && err != nil {
			errs = append(errs, fmt.Errorf("--%s %q: it needs host:port, like %s", flag, addr, net.JoinHostPort(Host, "7400")))
		}
	}
	errs = append(errs, edge.CheckOrigins(s.WebSocketOrigins))
	if s.ProducerRate < 0 || s.ProducerInFlight < 0 {
		errs = append(errs, errors.New("--producer-rate and --producer-in-flight are above 0"))
	}
	return errors.Join(errs...)
}

// workers of compute: one core stays with I/O.
func workers() int { return max(1, runtime.NumCPU()-1) }

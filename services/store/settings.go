package store

import (
	"cmp"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/settings"
)

// Settings of a store. New applies the defaults to zero values, so that a program may set only what it means to.
type Settings struct {
	ID           string        `help:"Name of this store, unique in the mesh. Default: host name and a random suffix."`
	Listen       string        `help:"Address of the gRPC API for routers and edges." default:":7403"`
	HTTP         string        `name:"http" help:"Address of health, metrics and pprof." default:":7483"`
	Advertise    string        `help:"Address at which others reach the gRPC API. Default: the one listened on."`
	NATS         string        `name:"nats" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	DB           string        `name:"db" help:"The database: postgres://USER:PASSWORD@HOST:PORT/NAME or sqlite:PATH. Required."`
	Writers      int           `help:"Connections that append side by side; 0: 4 for Postgres, 1 for SQLite." default:"0"`
	Standalone   bool          `help:"Without NATS: this is the database's only store."`
	NewEpoch     bool          `help:"Begin a new incarnation of every topic's log, then go on: after the database was restored from a backup or a standby was promoted. No store may run meanwhile."`
	AllowNoFsync bool          `name:"allow-no-fsync" help:"Use a Postgres with fsync=off, which may lose what was acknowledged."`
	LogLevel     string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio   float64       `help:"Share of traces that begin here to be sampled, 0 to 1." default:"0.01"`
	Grace        time.Duration `help:"How long a planned stop may take." default:"15s"`
	// Version of the program, for traces.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("store"))
	s.Listen = cmp.Or(s.Listen, ":7403")
	s.HTTP = cmp.Or(s.HTTP, ":7483")
	s.NATS = cmp.Or(s.NATS, "nats://127.0.0.1:4222")
	if s.Writers == 0 {
		s.Writers = 4
		if s.sqlite() {
			s.Writers = 1
		}
	}
	s.LogLevel = cmp.Or(s.LogLevel, "info")
	s.Grace = cmp.Or(s.Grace, 15*time.Second)
	return s
}

func (s Settings) sqlite() bool { return strings.HasPrefix(s.DB, "sqlite:") }

func (s Settings) postgres() bool {
	return strings.HasPrefix(s.DB, "postgres://") || strings.HasPrefix(s.DB, "postgresql://")
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.Require("db", d.DB),
		settings.Range("writers", d.Writers, 1, 64),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
	}
	if d.Advertise != "" {
		errs = append(errs, settings.Addr("advertise", d.Advertise))
	}
	switch {
	case d.DB == "" || d.postgres():
	case !d.sqlite():
		errs = append(errs, errors.New("--db must be postgres://… or sqlite:PATH")) // it may hold a password: not shown
	case d.DB == "sqlite:":
		errs = append(errs, errors.New("--db sqlite: names no file"))
	case d.Writers != 1:
		errs = append(errs, errors.New("--writers must be 1 for SQLite: it has one writer"))
	}
	return errors.Join(errs...)
}

// advertised is the address that others are told: the one set, else the one listened on, with this host's name where it is every interface.
func advertised(set string, listening net.Addr) string {
	if set != "" {
		return set
	}
	host, port, err := net.SplitHostPort(listening.String())
	if err != nil || !net.ParseIP(host).IsUnspecified() {
		return listening.String()
	}
	name, err := os.Hostname()
	if err == nil {
		_, err = net.LookupHost(name)
	}
	if err != nil {
		name = "127.0.0.1"
	}
	return net.JoinHostPort(name, port)
}

package compute

import (
	"cmp"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Settings of a compute node. Their tags hold the defaults, which New gives to what is zero, so
// that a program sets only what it means to. Of fields tagged zero:"keep", 0 is a value and no
// default. docs/operations.md has the tables, generated from the tags; see: names the part that
// tells more.
type Settings struct {
	ID           string        `help:"Name of this node, unique in the mesh: 1 to 64 of A-Z a-z 0-9 _ and -. Default: the host name and a random suffix."`
	Listen       string        `help:"Address of the gRPC API; port 0 picks a free one." default:":7402"`
	HTTP         string        `name:"http" help:"Address of health and metrics." default:":7482"`
	PprofAddr    string        `help:"Address of profiles, /debug/pprof/, such as 127.0.0.1:6060; empty: none. Who reaches it reads the process's memory."`
	Mesh         string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say." see:"several-meshes-on-one-nats"`
	Stores       []string      `help:"Addresses of some stores, host:port, from which models are loaded. Without any, jobs that name a model are refused (UNSUPPORTED)." see:"models"`
	ModelMemory  int           `help:"Bytes that loaded models may take together; the least recently used make room." default:"536870912" see:"models"`
	Workers      int           `help:"Goroutines that rank; 0: one per core. Where an edge is on the same machine, leave it a core, or start compute with a lower priority (nice -n 19)." default:"0"`
	ShortQueue   int           `help:"Short jobs that may be queued; further ones are refused (OVERLOADED)." default:"4096"`
	LongQueue    int           `help:"Long jobs that may be queued; further ones are refused (OVERLOADED)." default:"1024"`
	RequestBytes int           `zero:"keep" help:"Bytes that jobs in progress may take; one address may have as much as is free, and a job three quarters of all, or twice of it where no other large one is under way. 0: no limit." default:"0" see:"what-one-caller-can-make-a-router-keep"`
	LogLevel     string        `live:"" help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio   float64       `live:"" zero:"keep" help:"Share of the traces that begin here that is sampled, 0 to 1." default:"0.01"`
	Grace        time.Duration `help:"How long a planned stop may take." default:"15s"`
	tierauth.Flags
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("compute"))
	s.Version = cmp.Or(s.Version, settings.Version())
	s.Workers = cmp.Or(s.Workers, cores.Usable())
	settings.Fill(&s)
	return s
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	return errors.Join(
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.OptionalAddr("pprof-addr", d.PprofAddr),
		meshid.CheckSetting(d.Mesh),
		settings.Range("model-memory", d.ModelMemory, 1<<20, 1<<40),
		settings.Range("workers", d.Workers, 1, 4096),
		settings.Range("short-queue", d.ShortQueue, 1, 1_000_000),
		settings.Range("long-queue", d.LongQueue, 1, 1_000_000),
		settings.Range("request-bytes", d.RequestBytes, 0, 1<<40),
		d.CheckTiers(),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
	)
}

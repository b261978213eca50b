package compute

import (
	"cmp"
	"errors"
	"runtime"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
)

// Settings of a compute node. New applies the defaults to zero values, so that a program may set
// only what it means to.
type Settings struct {
	ID          string        `help:"Name of this node, unique in the mesh. Default: host name and a random suffix."`
	Listen      string        `help:"Address of the gRPC API." default:":7402"`
	HTTP        string        `name:"http" help:"Address of health, metrics and pprof." default:":7482"`
	Mesh        string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say."`
	Stores      []string      `help:"Addresses of some stores, host:port, from which models are loaded. Without any, jobs that name a model are refused."`
	ModelMemory int           `help:"Bytes that loaded models may take together; those asked for longest ago make room." default:"536870912"`
	Workers     int           `help:"Goroutines that rank; 0: one per core." default:"0"`
	ShortQueue  int           `help:"Short jobs that may wait; more are refused." default:"4096"`
	LongQueue   int           `help:"Long jobs that may wait; more are refused." default:"1024"`
	LogLevel    string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio  float64       `help:"Share of traces that begin here to be sampled, 0 to 1." default:"0.01"`
	Grace       time.Duration `help:"How long a planned stop may take." default:"15s"`
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("compute"))
	s.Version = cmp.Or(s.Version, settings.Version())
	s.Listen = cmp.Or(s.Listen, ":7402")
	s.HTTP = cmp.Or(s.HTTP, ":7482")
	s.ModelMemory = cmp.Or(s.ModelMemory, 512<<20)
	s.Workers = cmp.Or(s.Workers, runtime.GOMAXPROCS(0))
	s.ShortQueue = cmp.Or(s.ShortQueue, 4096)
	s.LongQueue = cmp.Or(s.LongQueue, 1024)
	s.LogLevel = cmp.Or(s.LogLevel, "info")
	s.Grace = cmp.Or(s.Grace, 15*time.Second)
	return s
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	return errors.Join(
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		meshid.CheckSetting(d.Mesh),
		settings.Range("model-memory", d.ModelMemory, 1<<20, 1<<40),
		settings.Range("workers", d.Workers, 1, 4096),
		settings.Range("short-queue", d.ShortQueue, 1, 1_000_000),
		settings.Range("long-queue", d.LongQueue, 1, 1_000_000),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
	)
}

package router

import (
	"cmp"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
)

// Settings of a router. New applies the defaults to zero values, so that a program may set only
// what it means to.
type Settings struct {
	ID               string        `help:"Name of this router, unique in the mesh. Default: host name and a random suffix."`
	Listen           string        `help:"Address of the public gRPC API." default:":7401"`
	HTTP             string        `name:"http" help:"Address of health, metrics and pprof." default:":7481"`
	Advertise        string        `help:"Address at which others reach the gRPC API. Default: the one listened on."`
	NATS             string        `name:"nats" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	Mesh             string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say."`
	Stores           []string      `help:"Addresses of some stores, host:port." default:"127.0.0.1:7403"`
	Computes         []string      `help:"Addresses of the compute nodes, host:port."`
	ProducerRate     int           `help:"Messages a second that one producer may publish in the whole mesh, unless a namespace says otherwise." default:"1000"`
	ProducerInFlight int           `help:"Messages that one producer may have unanswered." default:"50"`
	MaxRate          int           `help:"Messages a second for all producers together; 0: no limit." default:"0"`
	MaxInFlight      int           `help:"Messages in work for all producers together." default:"100000"`
	Consumers        int           `help:"Streams of backends that consume." default:"2000"`
	CallerConsumers  int           `help:"Streams of one backend that consumes." default:"500"`
	BroadcastFrom    int           `help:"How many edges, at least, must want a topic for its messages to go out once for all of them; more than there are: never." default:"3"`
	MaxBytes         int           `help:"Bytes that messages in work may take up in this router." default:"268435456"`
	EdgeQueueBytes   int           `help:"Bytes that may wait to be sent to all edges together." default:"268435456"`
	AppendWait       time.Duration `help:"How long durable messages should wait for the store at most: from half of that on, low priorities are refused." default:"50ms"`
	ShedLag          time.Duration `help:"How late this router may be with what reaches it: messages are refused, low priorities first, so that it is half of that. 0: never." default:"0s"`
	MaxConnections   int           `help:"Producers' connections." default:"10000"`
	MaxCalls         int           `help:"Calls and streams under way on one connection; more wait at the client." default:"1000"`
	PresenceWatches  int           `help:"Watches of who is subscribed, at a time." default:"1000"`
	PresenceMembers  int           `help:"Members that one such watch may have." default:"1000000"`
	PresenceQueue    int           `help:"Joins and leaves that may wait for the caller of such a watch; then it ends (SLOW_CONSUMER)." default:"65536"`
	CallerClaims     int           `help:"Operations on claims and watches of claims that one caller may have under way." default:"2000"`
	ClaimWatches     int           `help:"Watches of claims, at a time." default:"10000"`
	LogLevel         string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio       float64       `help:"Share of traces that begin here to be sampled, 0 to 1." default:"0.01"`
	Grace            time.Duration `help:"How long a planned stop may take." default:"15s"`
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("router"))
	s.Version = cmp.Or(s.Version, settings.Version())
	s.Listen = cmp.Or(s.Listen, ":7401")
	s.HTTP = cmp.Or(s.HTTP, ":7481")
	s.NATS = cmp.Or(s.NATS, "nats://127.0.0.1:4222")
	if len(s.Stores) == 0 {
		s.Stores = []string{"127.0.0.1:7403"}
	}
	s.ProducerRate = cmp.Or(s.ProducerRate, 1000)
	s.ProducerInFlight = cmp.Or(s.ProducerInFlight, 50)
	s.MaxInFlight = cmp.Or(s.MaxInFlight, 100_000)
	s.Consumers = cmp.Or(s.Consumers, 2000)
	s.CallerConsumers = cmp.Or(s.CallerConsumers, 500)
	s.BroadcastFrom = cmp.Or(s.BroadcastFrom, 3)
	s.MaxBytes = cmp.Or(s.MaxBytes, 256<<20)
	s.EdgeQueueBytes = cmp.Or(s.EdgeQueueBytes, 256<<20)
	s.AppendWait = cmp.Or(s.AppendWait, 50*time.Millisecond)
	s.MaxConnections = cmp.Or(s.MaxConnections, 10_000)
	s.MaxCalls = cmp.Or(s.MaxCalls, 1000)
	s.PresenceWatches = cmp.Or(s.PresenceWatches, 1000)
	s.PresenceMembers = cmp.Or(s.PresenceMembers, 1_000_000)
	s.PresenceQueue = cmp.Or(s.PresenceQueue, 1<<16)
	s.CallerClaims = cmp.Or(s.CallerClaims, 2000)
	s.ClaimWatches = cmp.Or(s.ClaimWatches, 10_000)
	s.LogLevel = cmp.Or(s.LogLevel, "info")
	s.Grace = cmp.Or(s.Grace, 15*time.Second)
	return s
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.Range("producer-rate", d.ProducerRate, 1, 100_000_000),
		settings.Range("producer-in-flight", d.ProducerInFlight, 1, 10_000_000),
		settings.Range("max-rate", d.MaxRate, 0, 100_000_000),
		settings.Range("max-in-flight", d.MaxInFlight, 1, 10_000_000),
		settings.Range("consumers", d.Consumers, 1, 1_000_000),
		settings.Range("caller-consumers", d.CallerConsumers, 1, 1_000_000),
		settings.Range("broadcast-from", d.BroadcastFrom, 2, 1_000_000),
		settings.Range("max-bytes", d.MaxBytes, 1<<20, 1<<40),
		settings.Range("edge-queue-bytes", d.EdgeQueueBytes, 1<<20, 1<<40),
		settings.Range("append-wait", d.AppendWait.Seconds(), 0.001, 60),
		settings.Range("shed-lag", d.ShedLag.Seconds(), 0, 60),
		settings.Range("max-connections", d.MaxConnections, 1, 1_000_000),
		settings.Range("max-calls", d.MaxCalls, 1, 1_000_000),
		settings.Range("presence-watches", d.PresenceWatches, 1, 1_000_000),
		settings.Range("presence-members", d.PresenceMembers, 1, 100_000_000),
		settings.Range("presence-queue", d.PresenceQueue, 1, 10_000_000),
		settings.Range("caller-claims", d.CallerClaims, 1, 1_000_000),
		settings.Range("claim-watches", d.ClaimWatches, 1, 1_000_000),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
	}
	if d.Advertise != "" {
		errs = append(errs, settings.Addr("advertise", d.Advertise))
	}
	for _, addr := range d.Stores {
		errs = append(errs, settings.Addr("stores", addr))
	}
	errs = append(errs, meshid.CheckSetting(d.Mesh))
	for _, addr := range d.Computes {
		errs = append(errs, settings.Addr("computes", addr))
	}
	return errors.Join(errs...)
}

package router

import (
	"cmp"
	"errors"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// Settings of a router. Their tags hold the defaults, which New gives to what is zero, so that a
// program sets only what it means to. Of fields tagged zero:"keep", 0 is a value and no default.
// docs/operations.md has the tables, generated from the tags; see: names the part that tells more.
type Settings struct {
	ID               string        `help:"Name of this router, unique in the mesh: 1 to 64 of A-Z a-z 0-9 _ and -. Default: the host name and a random suffix."`
	Listen           string        `help:"Address of the public gRPC API; port 0 picks a free one." default:":7401"`
	HTTP             string        `name:"http" help:"Address of health and metrics." default:":7481"`
	PprofAddr        string        `help:"Address of profiles, /debug/pprof/, such as 127.0.0.1:6060; empty: none. Who reaches it reads the process's memory."`
	Advertise        string        `help:"Address at which others reach the gRPC API: needed wherever --listen names no host that others know. Default: the one listened on."`
	NATS             string        `name:"nats" secret:"url" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	Mesh             string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say." see:"several-meshes-on-one-nats"`
	Stores           []string      `help:"Addresses of some stores, host:port, separated by commas; the others are learned from them." default:"127.0.0.1:7403"`
	Computes         []string      `help:"Addresses of compute nodes, host:port. Without any, Rank answers UNAVAILABLE."`
	ProducerRate     int           `help:"Messages that one producer may publish in a second in the whole mesh, unless a namespace says otherwise." default:"1000" see:"overload"`
	ProducerInFlight int           `help:"Messages of one producer that may be unanswered in the whole mesh, unless a namespace says otherwise." default:"50" see:"overload"`
	MaxRate          int           `help:"Messages that all producers together may publish in a second; 0: no limit." default:"0" see:"overload"`
	MaxInFlight      int           `help:"Messages of all producers together that may be unanswered." default:"100000" see:"overload"`
	Consumers        int           `help:"Streams of backends that consume, at a time." default:"2000"`
	CallerConsumers  int           `help:"Streams of one backend that consumes, at a time." default:"500"`
	BroadcastFrom    int           `help:"How many edges at least (and two thirds of all) must want a topic for its messages to go out once for every edge; 1000000: never." default:"3"`
	MaxBytes         int           `help:"Bytes of unanswered messages that this router may hold." default:"268435456" see:"overload"`
	RequestBytes     int           `zero:"keep" help:"Bytes that requests in progress, and answers that callers don't read, may take; one address may have as much as is free, and a request three quarters of all, or twice of it where no other large one is under way. 0: no limit." default:"0" see:"what-one-caller-can-make-a-router-keep"`
	EdgeQueueBytes   int           `help:"Bytes that may be queued for all edges together; beyond it durable messages are repaired from the log, ephemeral ones are dropped." default:"268435456"`
	AppendWait       time.Duration `help:"How long a durable message may wait for the store; from half of it on, messages of low priority are refused." default:"50ms" see:"overload"`
	ShedLag          time.Duration `zero:"keep" help:"How late this router may be with what reaches it: messages are refused, low priorities first, to keep it at half of that. 0: never." default:"0s" see:"overload"`
	MaxConnections   int           `help:"Producers' connections." default:"10000"`
	MaxCalls         int           `help:"Calls and streams under way on one connection; further ones wait at the client." default:"1000"`
	PresenceWatches  int           `help:"Watches of who is subscribed, at a time." default:"1000"`
	PresenceMembers  int           `help:"Members that one such watch may have, about 230 bytes each." default:"1000000"`
	PresenceTopics   int           `help:"Topics whose members clients watch, at a time; further ones are refused (OVERLOADED)." default:"50000"`
	PresenceMemory   int           `help:"Bytes that users in these topics take, about, with what they say of themselves; beyond it topics are refused, and the largest end (OVERLOADED)." default:"268435456"`
	PresenceQueue    int           `help:"Joins and leaves that may be queued for the caller of such a watch; beyond it the watch ends (SLOW_CONSUMER)." default:"65536"`
	CallerClaims     int           `help:"Operations on claims and watches of claims that one caller may have under way." default:"2000"`
	ClaimWatches     int           `help:"Watches of claims, at a time." default:"10000"`
	TLSCerts         []string      `name:"tls-cert" help:"PEM files of certificates with their chains, one for each --tls-key: backends may connect with TLS then. A backend gets the first certificate that is for the name it asks for, or else the first of all." see:"tls-at-routers"`
	TLSKeys          []string      `name:"tls-key" help:"PEM files of the certificates' keys, in the same order." see:"tls-at-routers"`
	TLSReload        time.Duration `name:"tls-reload" help:"How often the certificate files are read again. Files with a fault change nothing." default:"10s" see:"tls-at-routers"`
	TLSMinVersion    string        `name:"tls-min-version" help:"Lowest version of TLS." enum:"1.2,1.3" default:"1.2" see:"tls-at-routers"`
	TLSRequired      bool          `name:"tls-required" help:"Refuse backends without TLS (UNSUPPORTED)." see:"tls-at-routers"`
	TLSClientCRL     string        `name:"tls-client-crl" help:"PEM file of lists of revoked certificates, each signed by one of --tls-client-ca, read again when it changes: a backend whose certificate is on them is refused, and each whose list has ended." see:"tls-at-routers"`
	TLSClientCA      string        `name:"tls-client-ca" help:"PEM file of certificates, read again when it changes: a backend with TLS must show a certificate that one of these has signed, or its handshake fails. Its limits go by the name in the certificate. One without TLS needs none: see --tls-required." see:"tls-at-routers"`
	Open             bool          `help:"Let everybody who reaches the port of the gRPC API do everything. A router starts with --backends or with this." see:"identity.md#backends"`
	Backends         string        `help:"YAML or JSON file of the backends that may call this router: how each proves who it is, and what it may do. Read again when it changes." see:"identity.md#backends"`
	Issuers          string        `help:"YAML or JSON file of who signs tokens (JWT), for the backends that prove themselves by one. Read again when it changes." see:"identity.md#the-issuers-file"`
	OutboundAllow    []string      `help:"Addresses of this network that keys of issuers may be fetched from, CIDR or host, separated by commas; others must be public." see:"identity.md#the-issuers-file"`
	AuditDecisions   float64       `zero:"keep" help:"Share of the decisions about who may call what that is logged, 0 to 1, with the rule; 100 a second at most. Changes by operators are logged all." default:"0" see:"identity.md#decisions"`
	LogLevel         string        `live:"" help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio       float64       `live:"" zero:"keep" help:"Share of the traces that begin here that is sampled, 0 to 1." default:"0.01"`
	Grace            time.Duration `help:"How long a planned stop may take." default:"15s"`
	tierauth.Flags
	tierauth.NATSFlags
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("router"))
	s.Version = cmp.Or(s.Version, settings.Version())
	settings.Fill(&s)
	return s
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.OptionalAddr("pprof-addr", d.PprofAddr),
		settings.Range("producer-rate", d.ProducerRate, 1, 100_000_000),
		settings.Range("producer-in-flight", d.ProducerInFlight, 1, 10_000_000),
		settings.Range("max-rate", d.MaxRate, 0, 100_000_000),
		settings.Range("max-in-flight", d.MaxInFlight, 1, 10_000_000),
		settings.Range("consumers", d.Consumers, 1, 1_000_000),
		settings.Range("caller-consumers", d.CallerConsumers, 1, 1_000_000),
		settings.Range("broadcast-from", d.BroadcastFrom, 2, 1_000_000),
		settings.Range("max-bytes", d.MaxBytes, 1<<20, 1<<40),
		settings.Range("request-bytes", d.RequestBytes, 0, 1<<40),
		settings.Range("edge-queue-bytes", d.EdgeQueueBytes, 1<<20, 1<<40),
		settings.Range("append-wait", d.AppendWait.Seconds(), 0.001, 60),
		settings.Range("shed-lag", d.ShedLag.Seconds(), 0, 60),
		settings.Range("max-connections", d.MaxConnections, 1, 1_000_000),
		settings.Range("max-calls", d.MaxCalls, 1, 1_000_000),
		settings.Range("presence-watches", d.PresenceWatches, 1, 1_000_000),
		settings.Range("presence-members", d.PresenceMembers, 1, 100_000_000),
		settings.Range("presence-topics", d.PresenceTopics, 1, 1_000_000),
		settings.Range("presence-memory", d.PresenceMemory, 1<<20, 1<<40),
		settings.Range("presence-queue", d.PresenceQueue, 1, 10_000_000),
		settings.Range("caller-claims", d.CallerClaims, 1, 1_000_000),
		settings.Range("claim-watches", d.ClaimWatches, 1, 1_000_000),
		d.tls().Check(),
		d.CheckTiers(),
		d.CheckNATS(),
		s.checkIdentity(),
		settings.Range("audit-decisions", d.AuditDecisions, 0, 1),
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

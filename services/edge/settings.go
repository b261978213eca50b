package edge

import (
	"cmp"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
)

// Settings of an edge. New applies the defaults to zero values, so that a program may set only what
// it means to; of ShedLag, TraceRatio, CatchupRate and the sockets' buffers 0 is 0.
type Settings struct {
	ID                    string        `help:"Name of this edge, unique in the mesh. Default: host name and a random suffix."`
	Listen                string        `help:"Address for subscribers (TCP)." default:":7400"`
	HTTP                  string        `name:"http" help:"Address of health, metrics and pprof." default:":7480"`
	Advertise             string        `help:"Where subscribers may go that this edge sends away, host:port, separated by commas; GOAWAY names it. Default: the public addresses of the others."`
	PublicAddress         string        `help:"Where subscribers reach this edge, host:port. Other edges name it to those that they send away."`
	BackendAddress        string        `help:"Where routers reach the subscribers' port, host:port, for backends that consume through them. Default: the one listened on, by this host's name."`
	NATS                  string        `name:"nats" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	Mesh                  string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say."`
	Stores                []string      `help:"Addresses of some stores, host:port." default:"127.0.0.1:7403"`
	Computes              []string      `help:"Addresses of the compute nodes, host:port. Without any, this edge scores rankings itself, but for those of models."`
	Loops                 int           `help:"Event loops; 0: one per core." default:"0"`
	MaxConnections        int           `help:"Connections held; more are refused. 100 fewer than the open-files limit where that is lower." default:"1000000"`
	MaxSubscriptions      int           `help:"Subscriptions of one connection." default:"1000"`
	MaxFrame              int           `help:"Bytes of a frame's body that a client may send." default:"1048576"`
	QueueMemory           int           `help:"Bytes that may wait for all connections together, with what the kernel holds for those that take nothing. Beyond it who owes most pays first." default:"1073741824"`
	QueueBytes            int           `help:"Bytes that may wait for one connection." default:"1048576"`
	QueueMessages         int           `help:"Messages that may wait for one connection." default:"1024"`
	SocketSend            int           `help:"Send buffer of a subscriber's socket in bytes (SO_SNDBUF); 0: the kernel's, which grows." default:"0"`
	SocketReceive         int           `help:"Receive buffer of a subscriber's socket in bytes (SO_RCVBUF); 0: the kernel's, which grows." default:"0"`
	SocketUnsent          int           `help:"Bytes that the kernel takes for a subscriber before it has sent them (TCP_NOTSENT_LOWAT); 0: as many as its buffer has room for." default:"131072"`
	HandshakeTimeout      time.Duration `help:"How long a client has for its TLS handshake and its Hello together." default:"5s"`
	MaxAddressConnections int           `help:"Connections held of one address (IPv4, or a /64 of IPv6); more are refused. 0: no limit, for behind one address there may be thousands." default:"0"`
	AcceptRate            int           `help:"Connections taken in a second; more wait in the kernel. 0: no limit." default:"0"`
	AddressAcceptRate     int           `help:"Connections taken of one address in a second; more are refused. 0: no limit." default:"0"`
	ExemptFrom            []string      `help:"Addresses and networks that are not limited one by one, separated by commas: routers, proxies, networks behind one address."`
	FrameTimeout          time.Duration `help:"How long a client has for a frame that it has begun." default:"30s"`
	StuckTimeout          time.Duration `help:"How long a client may take nothing at all of what is sent to it before it is closed (SLOW_CONSUMER). As of unhealthy ones, 1 % are closed in ten seconds at most, and none while the edge is late or many come to it together." default:"2m"`
	FrameMemory           int           `help:"Bytes of frames that have not come whole, for all connections together." default:"268435456"`
	ProxyProtocolFrom     []string      `help:"Addresses and networks of proxies, separated by commas: what they say with the PROXY protocol (v1, v2) of whom they connect for is believed. They must send it for each client, and are not limited by address themselves."`
	MaxFrameRate          int           `help:"Frames that one client may send in a second; it is read no faster. 0: no limit." default:"0"`
	MaxByteRate           int           `help:"Bytes that one client may send in a second; it is read no faster. 0: no limit." default:"0"`
	RatePatience          time.Duration `help:"How long a client may stay above --max-frame-rate or --max-byte-rate before it is closed." default:"30s"`
	TLSCerts              []string      `name:"tls-cert" help:"Files of certificates with their chains, PEM, one for each --tls-key: clients may come with TLS then. A client gets the first that is for the name it asks for, or else the first of all."`
	TLSKeys               []string      `name:"tls-key" help:"Files of the certificates' keys, PEM, in the same order."`
	TLSReload             time.Duration `name:"tls-reload" help:"How often the files are looked at. New ones that are not good change nothing." default:"10s"`
	TLSMinVersion         string        `name:"tls-min-version" help:"Lowest version of TLS." enum:"1.2,1.3" default:"1.2"`
	TLSRequired           bool          `name:"tls-required" help:"Refuse clients without TLS. Routers still come without, for backends that consume."`
	TLSClientCA           string        `name:"tls-client-ca" help:"File of certificates, PEM: a client with TLS must show one that one of these has signed."`
	TLSWorkers            int           `name:"tls-workers" help:"TLS handshakes that compute at a time; 0: half as many as there are cores, at least one." default:"0"`
	TLSHandshakes         int           `name:"tls-handshakes" help:"TLS handshakes under way; more are refused. One whose client lets it wait for a second gives way." default:"2048"`
	Resumes               int           `help:"Reads of logs at a time, of each store, for subscribers that catch up." default:"16"`
	CatchupRate           int           `help:"Messages a second from the log that each loop has for all subscribers that catch up, in thousands; 0: no limit." default:"600"`
	ShedLag               time.Duration `help:"How late an event loop may be, in the median of a second, before it refuses new connections and subscriptions (OVERLOADED); it takes them again below half of that. 0: never." default:"250ms"`
	Unhealthy             string        `help:"What becomes of connections whose round trips show that their link is ill: report (they are counted), close (they are closed as UNHEALTHY, 1 % in ten seconds at most, and none while the edge is late or many turn unhealthy together) or off." enum:"close,report,off" default:"report"`
	Poller                string        `help:"Who tells event loops what happens to connections: epoll (Linux), net (Go's own poller, on every system: slower, some KiB more for a connection) or auto, which is epoll where there is one." enum:"auto,epoll,net" default:"auto"`
	Send                  string        `help:"How bytes leave: auto, uring (io_uring: one system call for many connections) or write (one for each). auto is uring where the kernel allows it." enum:"auto,uring,write" default:"auto"`
	PinCPUs               bool          `name:"pin-cpus" help:"Keep each loop on a thread and a CPU of its own, of those that this process may use. Idle connections then cost more."`
	WhereBudget           time.Duration `help:"What all content filters of a topic may take for one message, as estimated; subscriptions beyond it are refused (OVERLOADED)." default:"200us"`
	PresenceMembers       int           `help:"Members of one topic or filter that routers may watch." default:"1000000"`
	Drain                 time.Duration `help:"How long a planned stop waits for connections to end." default:"10s"`
	DrainPace             int           `help:"Connections in a second that a planned stop sends to other edges, as far as --drain has time for so few." default:"1000"`
	LogLevel              string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio            float64       `help:"Share of traces that begin here to be sampled, 0 to 1." default:"0.01"`
	Grace                 time.Duration `help:"How long a planned stop may take." default:"15s"`
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("edge"))
	s.Version = cmp.Or(s.Version, settings.Version())
	s.Listen = cmp.Or(s.Listen, ":7400")
	s.HTTP = cmp.Or(s.HTTP, ":7480")
	s.NATS = cmp.Or(s.NATS, "nats://127.0.0.1:4222")
	if len(s.Stores) == 0 {
		s.Stores = []string{"127.0.0.1:7403"}
	}
	s.Loops = cmp.Or(s.Loops, min(runtime.GOMAXPROCS(0), feed.MaxLoops-1))
	s.MaxConnections = cmp.Or(s.MaxConnections, 1_000_000)
	s.MaxSubscriptions = cmp.Or(s.MaxSubscriptions, 1000)
	s.MaxFrame = cmp.Or(s.MaxFrame, 1<<20)
	s.QueueMemory = cmp.Or(s.QueueMemory, 1<<30)
	s.QueueBytes = cmp.Or(s.QueueBytes, min(1<<20, s.QueueMemory))
	s.QueueMessages = cmp.Or(s.QueueMessages, 1024)
	s.HandshakeTimeout = cmp.Or(s.HandshakeTimeout, 5*time.Second)
	s.FrameTimeout = cmp.Or(s.FrameTimeout, 30*time.Second)
	s.StuckTimeout = cmp.Or(s.StuckTimeout, 2*time.Minute)
	s.FrameMemory = cmp.Or(s.FrameMemory, 256<<20)
	s.RatePatience = cmp.Or(s.RatePatience, 30*time.Second)
	s.TLSReload = cmp.Or(s.TLSReload, 10*time.Second)
	s.TLSMinVersion = cmp.Or(s.TLSMinVersion, "1.2")
	s.TLSHandshakes = cmp.Or(s.TLSHandshakes, 2048)
	s.Resumes = cmp.Or(s.Resumes, 16)
	s.WhereBudget = cmp.Or(s.WhereBudget, filters.DefaultBudget)
	s.PresenceMembers = cmp.Or(s.PresenceMembers, 1_000_000)
	s.Unhealthy = cmp.Or(s.Unhealthy, string(linkhealth.Report))
	s.Grace = cmp.Or(s.Grace, 15*time.Second)
	s.DrainPace = cmp.Or(s.DrainPace, 1000)
	s.Drain = cmp.Or(s.Drain, min(10*time.Second, s.Grace*2/3))
	s.LogLevel = cmp.Or(s.LogLevel, "info")
	return s
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.Range("loops", d.Loops, 1, feed.MaxLoops-1),
		settings.Range("max-connections", d.MaxConnections, 1, 10_000_000),
		settings.Range("max-address-connections", d.MaxAddressConnections, 0, 10_000_000),
		settings.Range("accept-rate", d.AcceptRate, 0, 1_000_000),
		settings.Range("address-accept-rate", d.AddressAcceptRate, 0, 100_000),
		settings.Range("max-subscriptions", d.MaxSubscriptions, 1, 100_000),
		settings.Range("max-frame", d.MaxFrame, 4<<10, 16<<20-1),
		settings.Range("queue-memory", d.QueueMemory, 1<<20, 1<<40),
		settings.Range("queue-bytes", d.QueueBytes, 4<<10, d.QueueMemory),
		settings.Range("queue-messages", d.QueueMessages, 16, 1<<16),
		settings.Range("socket-send", d.SocketSend, 0, 64<<20),
		settings.Range("socket-receive", d.SocketReceive, 0, 64<<20),
		settings.Range("socket-unsent", d.SocketUnsent, 0, 64<<20),
		settings.Range("handshake-timeout", d.HandshakeTimeout.Seconds(), 0.1, 300),
		settings.Range("frame-timeout", d.FrameTimeout.Seconds(), 0.1, 3600),
		settings.Range("stuck-timeout", d.StuckTimeout.Seconds(), 1, 86400),
		settings.Range("frame-memory", d.FrameMemory, 1<<20, 1<<40),
		settings.Range("max-frame-rate", d.MaxFrameRate, 0, 1_000_000),
		settings.Range("max-byte-rate", d.MaxByteRate, 0, 1<<40),
		settings.Range("rate-patience", d.RatePatience.Seconds(), 0.1, 86400),
		settings.Range("tls-reload", d.TLSReload.Seconds(), 0.01, 86400),
		settings.Range("tls-workers", d.TLSWorkers, 0, 1024),
		settings.Range("tls-handshakes", d.TLSHandshakes, 1, 1_000_000),
		d.checkTLS(),
		settings.Range("shed-lag", d.ShedLag.Seconds(), 0, 60),
		settings.Range("resumes", d.Resumes, 1, 1024),
		settings.Range("catchup-rate", d.CatchupRate, 0, 1_000_000),
		settings.Range("where-budget", d.WhereBudget.Seconds(), 1e-6, 0.1),
		settings.Range("presence-members", d.PresenceMembers, 1, 100_000_000),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
		settings.Range("drain-pace", d.DrainPace, 1, 10_000_000),
		settings.Range("drain", d.Drain.Seconds(), 0.05, d.Grace.Seconds()),
	}
	if _, err := loop.ParsePoller(d.Poller); err != nil {
		errs = append(errs, err)
	}
	if _, err := linkhealth.ParseMode(d.Unhealthy); err != nil {
		errs = append(errs, err)
	}
	if _, err := loop.ParseSendMode(d.Send); err != nil {
		errs = append(errs, err)
	}
	if _, err := admission.ParsePrefixes("exempt-from", d.ExemptFrom); err != nil {
		errs = append(errs, err)
	}
	if _, err := admission.ParsePrefixes("proxy-protocol-from", d.ProxyProtocolFrom); err != nil {
		errs = append(errs, err)
	}
	for _, addr := range d.Stores {
		errs = append(errs, settings.Addr("stores", addr))
	}
	errs = append(errs, meshid.CheckSetting(d.Mesh))
	for _, addr := range d.Computes {
		errs = append(errs, settings.Addr("computes", addr))
	}
	if d.BackendAddress != "" {
		errs = append(errs, settings.Addr("backend-address", d.BackendAddress))
	}
	if d.PublicAddress != "" {
		errs = append(errs, settings.Addr("public-address", d.PublicAddress))
	}
	for _, addr := range d.advertised() {
		errs = append(errs, settings.Addr("advertise", addr))
	}
	return errors.Join(errs...)
}

// advertised addresses, one by one.
func (s *Settings) advertised() []string {
	if s.Advertise == "" {
		return nil
	}
	return strings.Split(s.Advertise, ",")
}

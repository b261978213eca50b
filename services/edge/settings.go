package edge

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/cores"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/admission"
	"github.com/pushmesh/pushmesh/services/edge/internal/limits/linkhealth"
	"github.com/pushmesh/pushmesh/services/edge/internal/loop"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/feed"
)

// Settings of an edge. Their tags hold the defaults, which New gives to what is zero, so that a
// program sets only what it means to. Of fields tagged zero:"keep", 0 is a value and no default.
// docs/operations.md has the tables, generated from the tags; see: names the part that tells more.
type Settings struct {
	ID                    string        `help:"Name of this edge, unique in the mesh: 1 to 64 of A-Z a-z 0-9 _ and -. Default: the host name and a random suffix."`
	Listen                string        `help:"Address for subscribers (TCP); port 0 picks a free one." default:":7400"`
	HTTP                  string        `name:"http" help:"Address of health and metrics." default:":7480"`
	PprofAddr             string        `help:"Address of profiles, /debug/pprof/, such as 127.0.0.1:6060; empty: none. Who reaches it reads the process's memory."`
	Advertise             string        `help:"Where subscribers may go that this edge sends away, host:port, separated by commas, such as a load balancer; GOAWAY names it. An address that is known to stop soon is left out. Default: the public addresses of the other edges." see:"a-planned-stop"`
	PublicAddress         string        `help:"Where subscribers reach this edge, host:port. Other edges name it in GOAWAY while this edge is heard, ready and not about to stop." see:"a-planned-stop"`
	BackendAddress        string        `help:"Where routers reach the subscribers' port, host:port, for backends that consume through them; its host is also where pushmesh top and doctor reach this edge. Default: the port listened on, by this host's name."`
	NATS                  string        `name:"nats" secret:"url" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	Mesh                  string        `help:"Name of the mesh: stores of a mesh with another name are refused. Default: what the stores say." see:"several-meshes-on-one-nats"`
	Stores                []string      `help:"Addresses of some stores, host:port, separated by commas; the others are learned from them." default:"127.0.0.1:7403"`
	Computes              []string      `help:"Addresses of compute nodes, host:port. Without any, this edge scores rankings itself, except those that need a model." see:"ranked-delivery"`
	Loops                 int           `help:"Event loops; 0: one per core." default:"0"`
	MaxConnections        int           `help:"Connections of all loops together; further ones are refused. The limit is 100 below the open-files limit where that is lower: the log line \"edge is serving\" says which." default:"1000000" see:"limits-of-connections"`
	MaxSubscriptions      int           `help:"Subscriptions of one connection." default:"1000"`
	MaxFrame              int           `help:"Largest body of a frame that a client may send, in bytes." default:"1048576"`
	QueueMemory           int           `help:"Bytes that may be queued for all connections together, with the queues' own memory and what the kernel holds for sockets whose client reads nothing. Candidates of rankings may take an eighth of it beside. When it is used up, the connection with the largest queue is trimmed to half." default:"1073741824" see:"slow-subscribers"`
	QueueBytes            int           `help:"Bytes that may be queued for one connection; beyond it the subscription's overflow policy decides." default:"1048576" see:"slow-subscribers"`
	QueueMessages         int           `help:"Messages that may be queued for one connection; beyond it the subscription's overflow policy decides." default:"1024" see:"slow-subscribers"`
	SocketSend            int           `help:"Send buffer of a subscriber's socket in bytes (SO_SNDBUF); 0: the kernel's, which grows." default:"0"`
	SocketReceive         int           `help:"Receive buffer of a subscriber's socket in bytes (SO_RCVBUF); 0: the kernel's, which grows." default:"0"`
	SocketUnsent          int           `zero:"keep" help:"Bytes that the kernel takes for a subscriber before it has sent them (TCP_NOTSENT_LOWAT); 0: as many as its send buffer has room for, which may be some MiB for a client that reads nothing." default:"131072"`
	HandshakeTimeout      time.Duration `help:"How long a client has for its TLS handshake and its Hello together." default:"5s"`
	MaxAddressConnections int           `help:"Connections of one address (IPv4, or a /64 of IPv6); further ones are refused. 0: no limit, because thousands may share one address." default:"0" see:"limits-of-connections"`
	AcceptRate            int           `help:"Connections accepted in a second; further ones wait in the kernel. 0: no limit." default:"0" see:"limits-of-connections"`
	AddressAcceptRate     int           `help:"Connections accepted from one address in a second; further ones are refused. 0: no limit." default:"0" see:"limits-of-connections"`
	ExemptFrom            []string      `help:"Addresses and networks without limits by address, separated by commas: routers, proxies, networks behind one address." see:"limits-of-connections"`
	FrameTimeout          time.Duration `help:"How long a client has for the rest of a frame, or of a TLS record, that it has begun." default:"30s" see:"limits-of-connections"`
	StuckTimeout          time.Duration `help:"How long a client may read nothing at all of what is sent to it before it is closed (SLOW_CONSUMER). At most 1 % of the connections are closed in ten seconds, and none while the edge is late or many clients stop reading together." default:"2m" see:"slow-subscribers"`
	FrameMemory           int           `help:"Bytes kept of frames and TLS records that have not arrived whole, for all connections together; those of one address (IPv4, or a /64 of IPv6) may take a quarter of it." default:"268435456" see:"limits-of-connections"`
	ConnectionMemory      int           `help:"Bytes kept for one connection beside its send queue: messages that are not ACKed, which may take a half of it, and what it subscribed to. Beyond that half messages are read from the log again where they must be sent again." default:"67108864" see:"limits-of-connections"`
	ClientMemory          int           `help:"The same, for all connections of one client together, by its client id; each connection has 64 KiB beside. 0: no limit." default:"1073741824" zero:"keep" see:"limits-of-connections"`
	AddressMemory         int           `help:"The same, for all connections of one address (IPv4, or a /64 of IPv6) together, whatever their client ids; those of --exempt-from count for none. 0: no limit." default:"268435456" zero:"keep" see:"limits-of-connections"`
	ProxyProtocolFrom     []string      `help:"Addresses and networks of proxies, separated by commas: the client address that they send with the PROXY protocol (v1, v2) is believed. They must send it for each client, and have no limits by address themselves." see:"behind-a-proxy"`
	ForwardedFrom         []string      `help:"Addresses and networks of proxies, separated by commas, that end HTTP: the client address that they send in X-Forwarded-For (the right-most that is no such proxy's) is believed for WebSockets. They have no limits by address themselves." see:"behind-a-proxy"`
	WebSocketOrigins      []string      `name:"websocket-origins" help:"Pages that may open WebSockets, separated by commas: https://app.example.com, https://*.example.com, same-host for those of the host that the request names, or * for all. Default: same-host. A client without an Origin header is no browser, and is not asked." see:"websocket.md#origins"`
	WebSocketQueryToken   bool          `name:"websocket-query-token" help:"Take tokens from the URL of a WebSocket (?token=), too. URLs are written to the logs of proxies." see:"websocket.md#tokens"`
	WebSocketCookies      bool          `name:"websocket-cookies" help:"Hand the cookies of a WebSocket's request to --connect-hook. Needs --websocket-origins, each by name: else any page could act for its visitor." see:"websocket.md#tokens"`
	MaxFrameRate          int           `help:"Frames that one client may send in a second; it is read no faster. 0: no limit." default:"0" see:"limits-of-connections"`
	MaxByteRate           int           `help:"Bytes that one client may send in a second; it is read no faster. 0: no limit." default:"0" see:"limits-of-connections"`
	DeadLetterRate        int           `zero:"keep" help:"Messages of one session that may become dead letters in a second because it does not ACK them; further ones wait in its receive window. 0: no limit." default:"100" see:"limits-of-connections"`
	UserDeadLetterRate    int           `zero:"keep" help:"The same for all sessions of one user on this edge together. 0: no limit." default:"1000" see:"limits-of-connections"`
	RatePatience          time.Duration `help:"How long a client may stay above --max-frame-rate or --max-byte-rate before it is closed." default:"30s" see:"limits-of-connections"`
	TLSCerts              []string      `name:"tls-cert" help:"PEM files of certificates with their chains, one for each --tls-key: clients may connect with TLS then. A client gets the first certificate that is for the name it asks for, or else the first of all." see:"tls"`
	TLSKeys               []string      `name:"tls-key" help:"PEM files of the certificates' keys, in the same order." see:"tls"`
	TLSReload             time.Duration `name:"tls-reload" help:"How often the certificate files are read again. Files with a fault change nothing." default:"10s" see:"tls"`
	TLSMinVersion         string        `name:"tls-min-version" help:"Lowest version of TLS." enum:"1.2,1.3" default:"1.2" see:"tls"`
	TLSRequired           bool          `name:"tls-required" help:"Refuse clients without TLS (UNSUPPORTED). Routers come for backends that consume as --mesh-cert and --plain-tiers say, with a ticket." see:"tls"`
	TLSClientCRL          string        `name:"tls-client-crl" help:"PEM file of lists of revoked certificates, each signed by one of --tls-client-ca, read again when it changes: a client whose certificate is on them is refused, and each whose list has ended." see:"tls"`
	TLSClientCA           string        `name:"tls-client-ca" help:"PEM file of certificates, read again when it changes: a client with TLS must show a certificate that one of these has signed, or is refused (UNAUTHENTICATED)." see:"tls"`
	TLSWorkers            int           `name:"tls-workers" help:"TLS handshakes that compute at a time; 0: half as many as there are cores, at least one." default:"0" see:"tls"`
	TLSHandshakes         int           `name:"tls-handshakes" help:"TLS handshakes under way, about 30 KiB each; further ones are refused (OVERLOADED). One whose client is silent for a second makes room, and an address that has the most of them makes room for others." default:"2048" see:"tls"`
	Issuers               string        `help:"File that lists who signs the tokens of clients (JWT), in YAML or JSON: a Hello must show a token of one of them." see:"identity.md#edges"`
	Open                  bool          `help:"Let in everybody who reaches the port for subscribers: each client belongs to the client id that it says. An edge starts with --issuers or with this." see:"identity.md#edges"`
	ClientsWithoutToken   string        `help:"What becomes of clients without a token where --issuers is set: refuse (UNAUTHENTICATED), warn (they are let in as by --open, and the log says so) or accept." enum:"refuse,warn,accept" default:"refuse" see:"identity.md#change-over"`
	TokenExpiry           string        `help:"What becomes of a connection whose token ends: close (TOKEN_EXPIRED, up to a minute before, so that not all come back at once), or until-reconnect, which keeps it until it ends by itself." enum:"close,until-reconnect" default:"close" see:"identity.md#expiry"`
	TokenGrace            time.Duration `help:"How much longer than its token a connection may last." default:"0s" see:"identity.md#expiry"`
	TokenWorkers          int           `help:"Tokens whose signature is checked at a time; 0: half as many as there are cores, at least one." default:"0" see:"identity.md#edges"`
	TokenCache            int           `help:"Bytes kept for tokens that were found good, so that a client that comes back costs no signature." default:"16777216" see:"identity.md#edges"`
	ConnectHook           string        `help:"URL of your backend that is asked by HTTP (POST), or by gRPC (grpcs://HOST:PORT), who a client is whose token no issuer has signed, or who has none: it answers with the claims of a token." see:"identity.md#ask-your-backend"`
	ConnectHookTimeout    time.Duration `help:"How long the backend of --connect-hook may take." default:"3s" see:"identity.md#ask-your-backend"`
	ConnectHookInFlight   int           `help:"Questions to the backend of --connect-hook at a time; others wait." default:"256" see:"identity.md#ask-your-backend"`
	PermissionHook        string        `help:"URL of your backend, or policy engine, that is asked by HTTP (POST, AuthZEN 1.0), or by gRPC (grpcs://HOST:PORT), whether a user may subscribe, publish or claim where the user's token does not grant it: https://HOST/access/v1/evaluation, mostly." see:"identity.md#ask-for-each-permission"`
	PermissionHookTimeout time.Duration `help:"How long the backend of --permission-hook may take." default:"3s" see:"identity.md#ask-for-each-permission"`
	PermissionInFlight    int           `name:"permission-hook-in-flight" help:"Questions to the backend of --permission-hook at a time; others wait." default:"256" see:"identity.md#ask-for-each-permission"`
	PermissionHookCache   int           `help:"Bytes kept for answers of the backend of --permission-hook, about 256 each." default:"16777216" see:"identity.md#ask-for-each-permission"`
	WebhookSecrets        string        `name:"webhook-secret-file" help:"File of the secrets, whsec_… and a line each, with which questions to --connect-hook and --permission-hook are signed (Standard Webhooks); it is read again when it changes. Without it they are not signed." see:"identity.md#ask-your-backend"`
	OutboundAllow         []string      `help:"What may be called beside public addresses, for the keys of issuers, for --connect-hook and for --permission-hook: prefixes such as 10.0.0.0/8, addresses, or host:port, separated by commas." see:"security.md#calls-to-urls-of-policies"`
	Resumes               int           `help:"Reads of logs at a time, of each store, for subscribers that catch up." default:"16"`
	CatchupRate           int           `zero:"keep" help:"Messages that each loop sends in a second from the log to all subscribers that catch up, in thousands, so that live ones keep their latency; a read counts for 16 messages, or for 64 where a connection has more than 64 positions; 0: no limit." default:"600"`
	ShedLag               time.Duration `zero:"keep" help:"How late an event loop may be, in the median of a second, before the edge refuses new connections and subscriptions (OVERLOADED, with a time to come back); below half of it they are accepted again. 0: never, for many edges on few cores." default:"250ms" see:"health"`
	Unhealthy             string        `help:"What happens to connections whose round trips show a bad link: report (they are counted), close (they are closed as UNHEALTHY, at most 1 % in ten seconds, and none while the edge is late or many turn unhealthy together) or off." enum:"close,report,off" default:"report" see:"ill-links"`
	Poller                string        `help:"Source of socket events: epoll (Linux), net (Go's own poller, on every system; slower, with a goroutine and some KiB more for each connection) or auto, which is epoll where there is one. The log line \"edge is serving\" says which." enum:"auto,epoll,net" default:"auto"`
	Send                  string        `help:"How bytes leave: uring (io_uring: one system call for many connections), write (one call for each) or auto, which is uring where the kernel allows it. The log line \"edge is serving\" and pushmesh_edge_send_mode say which." enum:"auto,uring,write" default:"auto"`
	PinCPUs               bool          `name:"pin-cpus" help:"Keep each loop on a thread and a CPU of its own, among those that this process may use. Steadier where nothing else runs on these CPUs; waking an idle loop costs more thread switches. Linux only."`
	WhereBudget           time.Duration `help:"What all content filters of a topic may take for one message, as estimated; subscriptions beyond it are refused (OVERLOADED)." default:"200us" see:"content-filters"`
	WhereMemory           int           `help:"Bytes kept for the content filters of all subscriptions together, as estimated; subscriptions beyond it are refused (OVERLOADED)." default:"536870912" see:"content-filters"`
	MaxGroups             int           `zero:"keep" help:"Groups (shared subscriptions) that have members on this edge or are dispatched by it; subscriptions that would make further ones are refused (OVERLOADED). 0: no limit." default:"50000" see:"limits-of-connections"`
	GroupMemory           int           `zero:"keep" help:"Bytes that groups on this edge keep, about 4 KiB each, with the messages that wait for members or for their ACKs. New members are refused (OVERLOADED) from three quarters of it on; when it is used up, each group takes one message at a time. 0: no limit." default:"268435456" see:"limits-of-connections"`
	GroupRate             int           `zero:"keep" help:"Groups that one connection may have made on this edge in a second, and ten times as many at once; further ones are refused (RATE_LIMITED). 0: no limit." default:"100" see:"limits-of-connections"`
	AddressGroups         int           `help:"Groups that clients of one address (IPv4, or a /64 of IPv6) may have made on this edge, but not of those that --exempt-from and --proxy-protocol-from name; subscriptions that would make further ones are refused (TOO_MANY_SUBSCRIPTIONS). 0: a quarter of --max-groups." default:"0" see:"limits-of-connections"`
	AddressTopics         int           `zero:"keep" help:"Topics with a log that clients of one address (IPv4, or a /64 of IPv6) may make on this edge by publishing, in an hour and at once, but not of those that --exempt-from and --proxy-protocol-from name; messages to further ones are refused (RATE_LIMITED), those to topics that are known to be there are taken. 0: no limit." default:"20000" see:"limits-of-connections"`
	UserTopics            int           `zero:"keep" help:"Topics with a log that one user may make on this edge by publishing, in an hour and at once, from whatever addresses; the rest is as for --address-topics. Clients without a token are no user. 0: no limit." default:"20000" see:"limits-of-connections"`
	PresenceMembers       int           `help:"Members of one topic or filter that routers may watch, about 290 bytes each while they do." default:"1000000"`
	Drain                 time.Duration `help:"How long a planned stop waits for connections to end." default:"10s" see:"a-planned-stop"`
	DrainPace             int           `help:"Connections that a planned stop sends to other edges in a second, as far as --drain leaves time for it." default:"1000" see:"a-planned-stop"`
	AuditDecisions        float64       `zero:"keep" help:"Share of what is refused to clients for who they are (FORBIDDEN, UNAUTHENTICATED) that is logged, 0 to 1, with the rule; 100 a second at most." default:"0" see:"identity.md#decisions"`
	LogLevel              string        `live:"" help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio            float64       `live:"" zero:"keep" help:"Share of the traces that begin here that is sampled, 0 to 1." default:"0.01"`
	Grace                 time.Duration `help:"How long a planned stop may take." default:"15s"`
	tierauth.Flags
	tierauth.NATSFlags
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("edge"))
	s.Version = cmp.Or(s.Version, settings.Version())
	s.Loops = cmp.Or(s.Loops, min(cores.Usable(), feed.MaxLoops-1))
	queue, drain := s.QueueBytes, s.Drain
	settings.Fill(&s)
	if queue == 0 {
		s.QueueBytes = min(s.QueueBytes, s.QueueMemory)
	}
	if drain == 0 {
		s.Drain = min(s.Drain, s.Grace*2/3)
	}
	return s
}

// addressGroups is how many groups one address may have made; 0: no limit.
func (s *Settings) addressGroups() int {
	if s.AddressGroups == 0 && s.MaxGroups > 0 {
		return max(s.MaxGroups/4, 1)
	}
	return s.AddressGroups
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.OptionalAddr("pprof-addr", d.PprofAddr),
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
		settings.Range("connection-memory", d.ConnectionMemory, 128<<10, 1<<40),
		settings.Range("client-memory", d.ClientMemory, 0, 1<<40),
		settings.Range("address-memory", d.AddressMemory, 0, 1<<40),
		settings.Range("max-frame-rate", d.MaxFrameRate, 0, 1_000_000),
		settings.Range("max-byte-rate", d.MaxByteRate, 0, 1<<40),
		settings.Range("dead-letter-rate", d.DeadLetterRate, 0, 1_000_000),
		settings.Range("user-dead-letter-rate", d.UserDeadLetterRate, 0, 1_000_000),
		settings.Range("rate-patience", d.RatePatience.Seconds(), 0.1, 86400),
		settings.Range("tls-workers", d.TLSWorkers, 0, 1024),
		settings.Range("tls-handshakes", d.TLSHandshakes, 1, 1_000_000),
		d.tls().Check(),
		settings.Range("token-workers", d.TokenWorkers, 0, 1024),
		settings.Range("token-cache", d.TokenCache, 64<<10, 1<<40),
		settings.Range("token-grace", d.TokenGrace.Seconds(), 0, maxGrace.Seconds()),
		d.checkIdentity(),
		settings.Range("shed-lag", d.ShedLag.Seconds(), 0, 60),
		settings.Range("resumes", d.Resumes, 1, 1024),
		settings.Range("catchup-rate", d.CatchupRate, 0, 1_000_000),
		settings.Range("where-memory", d.WhereMemory, 1<<20, 1<<40),
		settings.Range("where-budget", d.WhereBudget.Seconds(), 1e-6, 0.1),
		settings.Range("max-groups", d.MaxGroups, 0, 10_000_000),
		settings.Range("group-memory", d.GroupMemory, 0, 1<<40),
		settings.Range("group-rate", d.GroupRate, 0, 1_000_000),
		settings.Range("address-groups", d.AddressGroups, 0, 10_000_000),
		settings.Range("address-topics", d.AddressTopics, 0, 100_000_000),
		settings.Range("user-topics", d.UserTopics, 0, 100_000_000),
		settings.Range("presence-members", d.PresenceMembers, 1, 100_000_000),
		d.CheckTiers(),
		d.CheckNATS(),
		settings.Range("audit-decisions", d.AuditDecisions, 0, 1),
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
	if _, err := admission.ParsePrefixes("forwarded-from", d.ForwardedFrom); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, d.checkWeb())
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

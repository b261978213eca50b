package store

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid"
	"github.com/pushmesh/pushmesh/internal/outbound"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/internal/tierauth"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres"
	"github.com/pushmesh/pushmesh/services/store/internal/service"
	"github.com/pushmesh/pushmesh/services/store/internal/shardlog"
)

// Settings of a store. Their tags hold the defaults, which New gives to what is zero, so that a
// program sets only what it means to. Of fields tagged zero:"keep", 0 is a value and no default.
// docs/operations.md has the tables, generated from the tags; see: names the part that tells more.
type Settings struct {
	ID              string            `help:"Name of this store, unique in the mesh: 1 to 64 of A-Z a-z 0-9 _ and -. Default: the host name and a random suffix."`
	Listen          string            `help:"Address of the gRPC API for routers and edges; port 0 picks a free one." default:":7403"`
	HTTP            string            `name:"http" help:"Address of health and metrics." default:":7483"`
	PprofAddr       string            `help:"Address of profiles, /debug/pprof/, such as 127.0.0.1:6060; empty: none. Who reaches it reads the process's memory."`
	Advertise       string            `help:"Address at which routers and edges reach the gRPC API: needed wherever --listen names no host that they know. Default: the one listened on."`
	NATS            string            `name:"nats" secret:"url" help:"URL of NATS servers, separated by commas." default:"nats://127.0.0.1:4222"`
	DB              string            `name:"db" secret:"" help:"The database: postgres://USER:PASSWORD@HOST:PORT/NAME or sqlite:PATH (one store only). Required."`
	DBFile          string            `name:"db-file" fileof:"db" help:"File with the URL of --db, in its place: who lists processes, or their environment, reads no password. Its role and password are read again for each connection."`
	DBOwner         string            `name:"db-owner" secret:"" help:"URL of the same database for the role that owns its schema: it migrates, and grants the role of --db what a store needs. Default: the role of --db owns the schema, or another store or --migrate-only has migrated." see:"roles"`
	DBOwnerFile     string            `name:"db-owner-file" fileof:"db-owner" help:"File with the URL of --db-owner, in its place." see:"roles"`
	MigrateOnly     bool              `help:"Bring the schema of --db up to date, and end." see:"roles"`
	ShardDBs        map[string]string `name:"shard-db" secret:"" help:"Further Postgres databases that hold shards, NAME=URL; may be given several times. --db is home." placeholder:"NAME=URL" see:"scaling.md#several-databases"`
	Writers         int               `help:"Connections that append side by side, beside those of the pool; 0: 2 for Postgres, 1 for SQLite." default:"0"`
	DBMinConns      int               `name:"db-min-conns" help:"Connections of the Postgres pool that are kept open." default:"2"`
	DBMaxConns      int               `name:"db-max-conns" help:"Most connections of the Postgres pool; 4 of them are for what is vital." default:"20" see:"postgres-in-trouble"`
	DBReads         int               `name:"db-reads" help:"How many connections of the pool may read the log at a time; their share stays when the limit of the pool falls." default:"4" see:"postgres-in-trouble"`
	DBIdle          time.Duration     `name:"db-idle" help:"How long a connection of the pool may be unused before it is closed." default:"30s"`
	DBLifetime      time.Duration     `name:"db-lifetime" help:"How long a connection of the pool is used, 10 % more or less." default:"30m"`
	DBCheck         time.Duration     `name:"db-check" help:"How often idle connections are checked." default:"15s"`
	DBAcquire       time.Duration     `name:"db-acquire" help:"How long a call waits for a connection before it is refused (OVERLOADED)." default:"5s" see:"postgres-in-trouble"`
	DBFixed         bool              `name:"db-fixed" help:"Use all connections of the pool, instead of as many as make the database do more." see:"postgres-in-trouble"`
	DBStall         time.Duration     `name:"db-stall" help:"How long a commit may take before the appends behind it are refused (UNAVAILABLE) instead of waiting." default:"1s" see:"postgres-in-trouble"`
	DBPatience      time.Duration     `name:"db-patience" help:"How long Postgres may take to take a connection, and for a statement, a commit among them, before the connection is given up. Shorter: a server that hangs is noticed sooner. Longer: slow commits end by themselves." default:"2s" see:"postgres-in-trouble"`
	DBFold          time.Duration     `name:"db-fold" help:"How often cursors and checkpoints, which are appended, are folded into tables with a row for each. More often: quicker takeovers, and a dead row for each cursor and topic that moved." default:"5m"`
	TopicTTL        time.Duration     `name:"topic-ttl" help:"How long a topic is remembered after its last message is no longer retained; then it is forgotten, and begins anew under a later epoch. The same for all stores, 1h at least; 0: for ever. Not before all stores know this setting." zero:"keep" default:"0s" see:"topics-are-forgotten"`
	Mesh            string            `help:"Name of the mesh, a part of its NATS subjects. Default: the one that the database has; main for a new database." see:"several-meshes-on-one-nats"`
	NewMesh         bool              `name:"new-mesh" help:"Make the database one of a new mesh named --mesh, then go on: once, after it was copied for a second mesh, or to rename a mesh. No store may run meanwhile." see:"several-meshes-on-one-nats"`
	Standalone      bool              `help:"Run without NATS, as the database's only store."`
	NewEpoch        bool              `help:"Begin a new epoch of every topic's log, then go on: once, after the database was restored from a backup or a standby was promoted. No store may run meanwhile." see:"restore-and-promotion"`
	SameEpoch       bool              `help:"Go on with the present epoch although the database was restored or promoted: once, where nothing that was acknowledged is missing." see:"restore-and-promotion"`
	TrustPromotion  bool              `help:"Go on without an operator after the promotion of a standby: standbys are synchronous, so that nothing that was acknowledged is missing. One whose primary waited for no standby (synchronous_standby_names was empty) is not trusted." see:"restore-and-promotion"`
	MaxSessions     int               `help:"Durable sessions of the mesh, groups among them; further ones are not created (OVERLOADED). 0: no limit." zero:"keep" default:"100000000" see:"quotas-of-sessions"`
	UserSessions    int               `help:"Durable sessions of one user; further ones are not created (TOO_MANY_SUBSCRIPTIONS). 0: no limit." zero:"keep" default:"10000" see:"quotas-of-sessions"`
	AddressSessions int               `help:"Durable sessions created from one address, IPv4 or a /64 of IPv6, but not from those that edges exempt (--exempt-from, --proxy-protocol-from); further ones are not created (TOO_MANY_SUBSCRIPTIONS). 0: no limit." zero:"keep" default:"1000000" see:"quotas-of-sessions"`
	UserClaims      int               `help:"Resources that clients of one user may hold or wait for at a time, of those that this store decides about; further ones are refused (RATE_LIMITED). Backends are not concerned. 0: no limit." zero:"keep" default:"1000" see:"quotas-of-sessions"`
	MaxSessionTTL   time.Duration     `name:"max-session-ttl" help:"Longest time that a client may have its session outlive its connection; longer ones are refused (INVALID_ARGUMENT), and one that asks for none gets at most this." default:"8784h" see:"quotas-of-sessions"`
	OutboundAllow   []string          `help:"What stores may call beside public addresses where a policy names a URL (claims.prepare.url): prefixes such as 10.0.0.0/8, addresses, or host:port, separated by commas." see:"security.md#calls-to-urls-of-policies"`
	WebhookSecrets  string            `name:"webhook-secret-file" help:"File of the secrets, whsec_… and a line each, with which calls by HTTP are signed (Standard Webhooks); it is read again when it changes. Without it they are not signed." see:"security.md#calls-to-urls-of-policies"`
	TrustClock      bool              `help:"Use the database's clock although this machine's differs by more than 10 s."`
	AllowNoFsync    bool              `name:"allow-no-fsync" help:"Use a Postgres with fsync or full_page_writes off, which may lose what was acknowledged."`
	LogLevel        string            `live:"" help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	TraceRatio      float64           `live:"" zero:"keep" help:"Share of the traces that begin here that is sampled, 0 to 1." default:"0.01"`
	Grace           time.Duration     `help:"How long a planned stop may take." default:"15s"`
	// Clock is this machine's clock, which is compared with the database's; nil: time.Now. Tests
	// move it.
	Clock func() time.Time `kong:"-"`
	// ShortestTopicTTL is what TopicTTL may be at least, for tests; 0: an hour.
	ShortestTopicTTL time.Duration `kong:"-"`
	tierauth.Flags
	tierauth.NATSFlags
	// Version of the program, for traces and whoever asks. Default: what the build says.
	Version string `kong:"-"`
}

// withDefaults fills in what is zero as the flags would.
func (s Settings) withDefaults() Settings {
	s.ID = cmp.Or(s.ID, settings.RandomID("store"))
	s.Version = cmp.Or(s.Version, settings.Version())
	if s.Writers == 0 {
		s.Writers = 2 // fewer share more of a commit: docs/adr/0021-fewer-larger-commits.md
		if s.sqlite() {
			s.Writers = 1
		}
	}
	settings.Fill(&s)
	return s
}

func (s Settings) pool() postgres.Pool {
	return postgres.Pool{
		Min: s.DBMinConns, Max: s.DBMaxConns, Reads: s.DBReads, Idle: s.DBIdle, Lifetime: s.DBLifetime, Check: s.DBCheck,
		Acquire: s.DBAcquire, Fixed: s.DBFixed,
	}
}

// quotas of sessions.
func (s Settings) quotas() service.Quotas {
	return service.Quotas{
		Quota: backend.Quota{User: s.UserSessions, Address: s.AddressSessions, All: s.MaxSessions}, TTL: s.MaxSessionTTL,
	}
}

func (s Settings) sqlite() bool { return strings.HasPrefix(s.DB, "sqlite:") }

func (s Settings) postgres() bool {
	return strings.HasPrefix(s.DB, "postgres://") || strings.HasPrefix(s.DB, "postgresql://")
}

// checkTopicTTL allows for ever, and what is long enough.
func (s *Settings) checkTopicTTL() error {
	if s.TopicTTL == 0 {
		return nil
	}
	return settings.Range("topic-ttl", s.TopicTTL.Hours(), cmp.Or(s.ShortestTopicTTL, shardlog.ShortestTopicTTL).Hours(), 10*366*24)
}

// Check finds every fault.
func (s *Settings) Check() error {
	d := s.withDefaults()
	errs := []error{
		bus.CheckID(d.ID),
		settings.Addr("listen", d.Listen),
		settings.Addr("http", d.HTTP),
		settings.OptionalAddr("pprof-addr", d.PprofAddr),
		settings.Require("db", d.DB),
		settings.Range("writers", d.Writers, 1, 64),
		settings.Range("db-min-conns", d.DBMinConns, 1, 1000),
		settings.Range("db-max-conns", d.DBMaxConns, 1, 1000),
		settings.Range("db-reads", d.DBReads, 1, 1000),
		settings.Range("db-idle", d.DBIdle.Seconds(), 1, 86400),
		settings.Range("db-lifetime", d.DBLifetime.Seconds(), 1, 7*86400),
		settings.Range("db-check", d.DBCheck.Seconds(), 0.1, 3600),
		settings.Range("db-acquire", d.DBAcquire.Seconds(), 0.1, 60),
		settings.Range("db-stall", d.DBStall.Seconds(), 0.05, 10),
		settings.Range("db-patience", d.DBPatience.Seconds(), 0.25, 10),
		settings.Range("db-fold", d.DBFold.Seconds(), 0.05, 3600),
		d.checkTopicTTL(),
		settings.Range("max-sessions", d.MaxSessions, 0, 1<<40),
		settings.Range("user-sessions", d.UserSessions, 0, 1_000_000),
		settings.Range("address-sessions", d.AddressSessions, 0, 1<<40),
		settings.Range("user-claims", d.UserClaims, 0, 1_000_000),
		settings.Range("max-session-ttl", d.MaxSessionTTL.Hours(), 1.0/60, 366*24),
		settings.Range("trace-ratio", d.TraceRatio, 0, 1),
		settings.Range("grace", d.Grace.Seconds(), 0.1, 600),
	}
	if !d.MigrateOnly { // it talks to the database alone
		errs = append(errs, d.CheckTiers(), d.CheckNATS())
	}
	errs = append(errs, d.checkShardDBs()...)
	_, err := outbound.ParseAllow(d.OutboundAllow)
	errs = append(errs, err)
	if d.NewEpoch && d.SameEpoch {
		errs = append(errs, errors.New("--new-epoch and --same-epoch exclude each other"))
	}
	errs = append(errs, meshid.CheckSetting(d.Mesh))
	if d.Advertise != "" {
		errs = append(errs, settings.Addr("advertise", d.Advertise))
	}
	switch {
	case d.DB == "" || d.postgres():
	case !d.sqlite():
		// it may hold a password: not shown
		errs = append(errs, errors.New("--db must be postgres://… or sqlite:PATH"))
	case d.DB == "sqlite:":
		errs = append(errs, errors.New("--db sqlite: names no file"))
	case d.Writers != 1:
		errs = append(errs, errors.New("--writers must be 1 for SQLite: it has one writer"))
	}
	return errors.Join(append(errs, d.checkOwner())...)
}

func (s Settings) checkOwner() error {
	switch {
	case s.DBOwner == "" && !s.MigrateOnly:
		return nil
	case !s.postgres():
		return errors.New("--db-owner and --migrate-only need Postgres as --db")
	case s.DBOwner != "" && !(Settings{DB: s.DBOwner}).postgres():
		return errors.New("--db-owner must be postgres://…") // it may hold a password: not shown
	case len(s.ShardDBs) > 0:
		return errors.New("--db-owner and --migrate-only are about --db alone: without --shard-db, run --migrate-only for each database, and then stores without --db-owner")
	}
	return nil
}

// databaseName is what the map of shards, metrics and messages call a database.
var databaseName = regexp.MustCompile(`^[a-z0-9_-]{1,32}$`)

func (s Settings) checkShardDBs() (errs []error) {
	if len(s.ShardDBs) > 0 && !s.postgres() {
		errs = append(errs, errors.New("--shard-db needs Postgres as --db"))
	}
	for name, url := range s.ShardDBs {
		if !databaseName.MatchString(name) || name == "home" {
			errs = append(errs, fmt.Errorf("--shard-db: name %q: 1 to 32 of a-z 0-9 _ -, and not home", name))
		}
		if !(Settings{DB: url}).postgres() {
			errs = append(errs, fmt.Errorf("--shard-db: %s must be postgres://…", name))
		}
	}
	return errs
}

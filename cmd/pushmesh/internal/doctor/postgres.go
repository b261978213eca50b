package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// inspected is what one store says about its databases.
type inspected struct {
	store     string
	databases []*meshv1.InspectedDatabase
	err       error
}

const (
	// longTransaction is for how many seconds a transaction may be open before it is worth a word.
	longTransaction = 15 * 60
	// leastWAL is below what min_wal_size makes commits wait for new segments.
	leastWAL = 1 << 30
	// spare connections that people and backups need.
	spare = 5
)

// checkPostgres judges what stores found. Stores share databases: what is a server's is said once,
// connections are added up.
func checkPostgres(r *Report, told []inspected) {
	wanted, locks := map[string]uint32{}, map[string]uint32{}
	for _, i := range told {
		for _, db := range i.databases {
			wanted[db.GetName()] += db.GetStoreConnections()
			locks[db.GetName()] += db.GetStoreLocks()
		}
	}
	judged := map[string]bool{}
	for _, i := range told {
		if i.err != nil {
			r.add(Fail, "postgres", i.store, i.err.Error(), "the store does not report its database's settings: look at its log, or upgrade a store that is older")
		}
		for _, db := range i.databases {
			subject := "database " + db.GetName()
			switch {
			case db.GetProblem() != "":
				r.add(Fail, "postgres", i.store+" "+subject, db.GetProblem(), "is the server up, and is --db (or --shard-db) of this store right?")
			case !judged[db.GetName()]:
				judged[db.GetName()] = true
				judge(r, subject, db, wanted[db.GetName()], locks[db.GetName()])
			}
			if db.GetPooler() == meshv1.InspectedDatabase_POOLER_TRANSACTION {
				r.add(Fail, "postgres", i.store+" "+subject, "a pooler in transaction mode is between",
					"connect directly, or set pool_mode = session: locks that say who may append belong to a session")
			}
		}
	}
}

func judge(r *Report, subject string, db *meshv1.InspectedDatabase, wanted, locks uint32) {
	if db.GetKind() != "postgres" {
		r.ok("postgres", subject, "%s: there is nothing to set", db.GetKind())
		return
	}
	before := len(r.Findings)
	bad := func(level Level, found, advice string) { r.add(level, "postgres", subject, found, advice) }
	set := db.GetSettings()
	if v := set["synchronous_commit"]; v != "on" && v != "remote_apply" {
		bad(Fail, "synchronous_commit is "+v, "set it to on: what is acknowledged can be lost in a crash")
	}
	if v := set["fsync"]; v != "on" {
		bad(Fail, "fsync is "+v, "set it to on: what is acknowledged can be lost, and the database with it")
	}
	if v := set["full_page_writes"]; v != "on" {
		level := Fail
		if db.GetNoFsyncAllowed() {
			level = Warn
		}
		bad(level, "full_page_writes is "+v, "set it to on, unless the file system never tears a page (ZFS)")
	}
	if db.GetPooler() == meshv1.InspectedDatabase_POOLER_SESSION {
		bad(Warn, "a pooler is between store and server", "it must be in session mode, and its limit of connections above what stores want; directly is better")
	}
	accepted(bad, db)
	connections(bad, db, wanted)
	lockTable(bad, db, locks)
	if s := db.GetOldestTransactionS(); s > longTransaction {
		bad(Warn, fmt.Sprintf("a transaction has been open for %d minutes", s/60),
			"find it in pg_stat_activity (ORDER BY xact_start): while it lasts, dead rows are not cleaned up. Set idle_in_transaction_session_timeout for people's and reports' roles")
	}
	if n, ok := amount(set["min_wal_size"]); ok && n < leastWAL {
		bad(Warn, "min_wal_size is "+set["min_wal_size"], "set it to what is written between two checkpoints, 1GB or more (max_wal_size above it): commits wait for every new segment")
	}
	if set["wal_recycle"] == "off" {
		bad(Warn, "wal_recycle is off", "set it to on: commits wait for every new segment")
	}
	if set["autovacuum"] == "off" {
		bad(Warn, "autovacuum is off", "set it to on")
	}
	if len(r.Findings) == before {
		found := fmt.Sprintf("version %s, settings as they should be, %d connections", set["server_version"], db.GetConnections())
		if !db.GetSeesOthers() {
			found += "; transactions of other roles are not seen (GRANT pg_monitor to the stores' role)"
		}
		r.ok("postgres", subject, "%s", found)
	}
}

// accepted judges whether the log may be written on the server, and would be on a promoted one.
func accepted(bad func(level Level, found, advice string), db *meshv1.InspectedDatabase) {
	is, was := db.GetServer(), db.GetAccepted()
	if is.GetSystem() != was.GetSystem() || is.GetTimeline() != was.GetTimeline() {
		bad(Fail, fmt.Sprintf("it was restored or promoted: it is system %d, timeline %d, and the log was written on system %d, timeline %d: nothing is appended",
			is.GetSystem(), is.GetTimeline(), was.GetSystem(), was.GetTimeline()),
			"pushmesh store accept-server --same-epoch where nothing that was acknowledged is missing, else --new-epoch; with --database where there are several")
	}
	if why := db.GetDistrust(); why != "" {
		bad(Warn, why, "set synchronous_standby_names, or start stores without --trust-promotion")
	}
}

// shards each have a lock while a store owns them.
const shards = 1024

// lockTable compares the locks that the server has room for with those that may be held at a time.
// The room is a share for each process that may be there (ProcArray and lock.c of PostgreSQL:
// max_locks_per_transaction for each backend and prepared transaction).
func lockTable(bad func(level Level, found, advice string), db *meshv1.InspectedDatabase, wanted uint32) {
	each, processes := 0, 2 // the autovacuum launcher, and one for slots
	for name, n := range map[string]*int{
		"max_locks_per_transaction": &each, "max_connections": &processes, "max_prepared_transactions": &processes, "max_worker_processes": &processes,
		"max_wal_senders": &processes, "autovacuum_max_workers": &processes,
	} {
		v, err := strconv.Atoi(db.GetSettings()[name])
		if err != nil {
			return // a store of an older version, which does not tell
		}
		*n += v
	}
	need := int(wanted) + int(db.GetTables()) + shards
	if room := each * processes; room < need {
		bad(Warn, fmt.Sprintf("max_locks_per_transaction is %d: there is room for %d locks, and %d shards, the statements of stores (%d) and a dump of %d tables may need %d",
			each, room, shards, wanted, db.GetTables(), need),
			fmt.Sprintf("set max_locks_per_transaction to %d or more, and restart the server: without room statements fail (out of shared memory)", (need+processes-1)/processes))
	}
}

// connections compares what the server gives with what stores may open.
func connections(bad func(level Level, found, advice string), db *meshv1.InspectedDatabase, wanted uint32) {
	most, err := strconv.Atoi(db.GetSettings()["max_connections"])
	if err != nil {
		return
	}
	reserved, _ := strconv.Atoi(db.GetSettings()["superuser_reserved_connections"])
	room := most - reserved
	if room < int(wanted)+spare {
		bad(Fail, fmt.Sprintf("max_connections leaves %d, and stores may open %d", room, wanted), fmt.Sprintf("set max_connections to %d or more, or lower --db-max-conns of the stores", int(wanted)+spare+reserved))
	}
	if int(db.GetConnections()) > room*9/10 {
		bad(Warn, fmt.Sprintf("%d of %d connections are in use", db.GetConnections(), room), "raise max_connections, or find out who holds them (pg_stat_activity)")
	}
}

// amount reads a size as SHOW prints it: a number and kB, MB, GB or TB.
func amount(s string) (bytes float64, ok bool) {
	for i, unit := range []string{"kB", "MB", "GB", "TB"} {
		if number, found := strings.CutSuffix(s, unit); found {
			n, err := strconv.ParseFloat(number, 64)
			return n * float64(int64(1)<<(10*(i+1))), err == nil
		}
	}
	return 0, false
}

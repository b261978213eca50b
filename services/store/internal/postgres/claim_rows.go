package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Statements that a run prepares when it begins. Each answers with one row if the run's row is
// still there, and otherwise does nothing.
const (
	changeClaims = "change_claims"
	putClaims    = "put_claims"
	deleteClaims = "delete_claims"
	proveClaims  = "prove_claims"
	readClaims   = "read_claims"
)

// claimColumns in the order of claimRow.
const claimColumns = `shard, seq, resource, owner, priority, token, ttl, joined_at, granted_at, expires_at, offered_until, node, incarnation, conn, bound, gone_at`

// Parts of a commit. The row of the run is locked before anything is changed: who deletes it waits
// for this commit, and after that it is not found. The clock is read after the lock.
const (
	claimMine = `WITH mine AS MATERIALIZED (SELECT id FROM pushmesh.claim_run WHERE id = $1 FOR KEY SHARE)`
	claimPut  = `, put AS (INSERT INTO pushmesh.claim_place (` + claimColumns + `) SELECT * FROM unnest($2::int[], $3::bigint[], $4::bytea[], $5::bytea[], $6::smallint[], $7::bigint[],
		$8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::bigint[], $15::bigint[], $16::boolean[], $17::bigint[])
		WHERE EXISTS (SELECT FROM mine)
		ON CONFLICT (shard, seq) DO UPDATE SET resource = excluded.resource, owner = excluded.owner, priority = excluded.priority, token = excluded.token, ttl = excluded.ttl,
			joined_at = excluded.joined_at, granted_at = excluded.granted_at, expires_at = excluded.expires_at, offered_until = excluded.offered_until, node = excluded.node,
			incarnation = excluded.incarnation, conn = excluded.conn, bound = excluded.bound, gone_at = excluded.gone_at)`
	claimClock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
)

// claimDelete has its parameters from $n on.
func claimDelete(n int) string {
	return fmt.Sprintf(`, gone AS (DELETE FROM pushmesh.claim_place AS p USING unnest($%d::int[], $%d::bigint[]) AS k (shard, seq)
		WHERE p.shard = k.shard AND p.seq = k.seq AND EXISTS (SELECT FROM mine))`, n, n+1)
}

// claimStatements by name. A commit that changes nothing locks and writes nothing: that the row was
// there while it ran is enough for what it answers.
var claimStatements = map[string]string{
	changeClaims: claimMine + claimPut + claimDelete(18) + ` SELECT ` + claimClock + ` FROM mine`,
	putClaims:    claimMine + claimPut + ` SELECT ` + claimClock + ` FROM mine`,
	deleteClaims: claimMine + claimDelete(2) + ` SELECT ` + claimClock + ` FROM mine`,
	proveClaims:  `SELECT ` + claimClock + ` FROM pushmesh.claim_run WHERE id = $1`,
	readClaims:   `SELECT ` + claimColumns + ` FROM pushmesh.claim_place WHERE shard BETWEEN $1 AND $2 ORDER BY shard, seq`,
}

// statement of a commit, with parameters that are valid until the next.
func (r *claimRun) statement(c *backend.ClaimChanges) (name string, params [][]byte) {
	a := &r.arrays
	a.reset()
	switch {
	case len(c.Put) > 0 && len(c.Delete) > 0:
		name = changeClaims
	case len(c.Put) > 0:
		name = putClaims
	case len(c.Delete) > 0:
		name = deleteClaims
	default:
		name = proveClaims
	}
	if len(c.Put) > 0 {
		a.places(c.Put)
	}
	if len(c.Delete) > 0 {
		column(a, oidInt4, c.Delete, func(a *arrays, k *backend.ClaimKey) { a.int4(k.Shard) })
		column(a, oidInt8, c.Delete, func(a *arrays, k *backend.ClaimKey) { a.int8(k.Seq) })
	}
	return name, append([][]byte{binary.BigEndian.AppendUint64(nil, uint64(r.id))}, a.params()...)
}

// places are parameters in the order of claimColumns.
func (a *arrays) places(all []backend.ClaimPlace) {
	column(a, oidInt4, all, func(a *arrays, p *backend.ClaimPlace) { a.int4(p.Shard) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.Seq) })
	column(a, oidBytes, all, func(a *arrays, p *backend.ClaimPlace) { a.text(p.Resource) })
	column(a, oidBytes, all, func(a *arrays, p *backend.ClaimPlace) { a.text(p.Owner) })
	column(a, oidInt2, all, func(a *arrays, p *backend.ClaimPlace) { a.int2(uint16(p.Priority)) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.Token) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.TTL) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.JoinedAt) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.GrantedAt) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.ExpiresAt) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.OfferedUntil) })
	column(a, oidBytes, all, func(a *arrays, p *backend.ClaimPlace) { a.text(p.Node) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.Incarnation) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.Conn) })
	column(a, oidBool, all, func(a *arrays, p *backend.ClaimPlace) { a.bool(p.Bound) })
	column(a, oidInt8, all, func(a *arrays, p *backend.ClaimPlace) { a.int8(p.GoneAt) })
}

// claimRow reads a row of claimColumns in binary form.
func claimRow(v [][]byte) backend.ClaimPlace {
	int8 := binary.BigEndian.Uint64
	return backend.ClaimPlace{
		ClaimKey: backend.ClaimKey{Shard: int(binary.BigEndian.Uint32(v[0])), Seq: int8(v[1])},
		Resource: string(v[2]), Owner: string(v[3]), Priority: v[4][1],
		Token: int8(v[5]), TTL: int8(v[6]), JoinedAt: int8(v[7]), GrantedAt: int8(v[8]), ExpiresAt: int8(v[9]), OfferedUntil: int8(v[10]),
		Node: string(v[11]), Incarnation: int8(v[12]), Conn: int8(v[13]), Bound: v[14][0] != 0, GoneAt: int8(v[15]),
	}
}

// load reads the places of shards, which are in order, and then proves that they were this run's
// all the time.
func (r *claimRun) load(ctx context.Context, shards []int, visit func(backend.ClaimPlace)) (now uint64, err error) {
	ranges := adjoining(shards)
	limit, cancel := context.WithTimeout(ctx, bulkTimeout)
	defer cancel()
	int4 := func(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
	err = pipelined(limit, r.conn, r.db.stall(), func(p *pgconn.Pipeline) {
		for _, s := range ranges {
			p.SendQueryPrepared(readClaims, [][]byte{int4(s[0]), int4(s[1])}, binaryForm, binaryForm)
		}
		p.SendQueryPrepared(proveClaims, [][]byte{binary.BigEndian.AppendUint64(nil, uint64(r.id))}, binaryForm, binaryForm)
	}, func(i int, row [][]byte) {
		if i < len(ranges) {
			visit(claimRow(row))
		} else {
			now = binary.BigEndian.Uint64(row[0])
		}
	})
	if err == nil && now == 0 {
		err = backend.ErrFenced
	}
	return now, err
}

// adjoining makes ranges, first and last, of numbers in order.
func adjoining(all []int) (ranges [][2]int) {
	for _, n := range all {
		if last := len(ranges) - 1; last >= 0 && ranges[last][1] == n-1 {
			ranges[last][1] = n
		} else {
			ranges = append(ranges, [2]int{n, n})
		}
	}
	return ranges
}

// rowsPerLook is how many rows are read before the deadline is moved.
const rowsPerLook = 1024

// pipelined sends statements in one round trip and one transaction, and tells each row with the
// number of its statement. It has until ctx's deadline, and the server at most patience for
// rowsPerLook rows: the connection's deadline does that, where pgx would start a goroutine each
// time. The connection is of no more use after an error.
func pipelined(ctx context.Context, conn *pgx.Conn, patience time.Duration, write func(*pgconn.Pipeline), row func(statement int, values [][]byte)) error {
	raw := conn.PgConn().Conn()
	extend := func() error {
		until := time.Now().Add(patience)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		return errors.Join(ctx.Err(), raw.SetDeadline(until))
	}
	if err := extend(); err != nil {
		return err
	}
	// one that can't be set is closed, and the next use says so
	defer func() { _ = raw.SetDeadline(time.Time{}) }()
	p := conn.PgConn().StartPipeline(context.Background())
	write(p)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	return errors.Join(answers(p, extend, row), p.Close())
}

func answers(p *pgconn.Pipeline, extend func() error, row func(statement int, values [][]byte)) error {
	read := 0
	for statement := 0; ; statement++ {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			if _, synced := results.(*pgconn.PipelineSync); !synced {
				return errors.New("the server did not answer the commit")
			}
			return nil
		}
		for reader.NextRow() {
			row(statement, reader.Values())
			if read++; read%rowsPerLook == 0 {
				if err := extend(); err != nil {
					return err
				}
			}
		}
		if _, err := reader.Close(); err != nil {
			return err
		}
	}
}

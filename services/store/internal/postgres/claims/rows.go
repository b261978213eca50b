package claims

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/postgres/server"
)

// Statements that a writer prepares when it begins. Each answers with one row if the writer's row
// is still there, and otherwise does nothing.
const (
	changeClaims = "change_claims"
	putClaims    = "put_claims"
	deleteClaims = "delete_claims"
	proveClaims  = "prove_claims"
	readClaims   = "read_claims"
)

// claimColumns in the order of claimRow.
const claimColumns = `shard, seq, resource, owner, priority, token, ttl, joined_at, granted_at, expires_at, offered_until, node, incarnation, conn, bound, gone_at`

// Parts of a commit. The writer's row is locked before anything is changed: deleting it waits
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
func (r *writer) statement(c *backend.ClaimChanges) (name string, params [][]byte) {
	a := &r.arrays
	a.Reset()
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
		places(a, c.Put)
	}
	if len(c.Delete) > 0 {
		server.Column(a, server.OIDInt4, c.Delete, func(a *server.Arrays, k *backend.ClaimKey) { a.Int4(k.Shard) })
		server.Column(a, server.OIDInt8, c.Delete, func(a *server.Arrays, k *backend.ClaimKey) { a.Int8(k.Seq) })
	}
	return name, append([][]byte{binary.BigEndian.AppendUint64(nil, uint64(r.id))}, a.Params()...)
}

// places are parameters in the order of claimColumns.
func places(a *server.Arrays, all []backend.ClaimPlace) {
	server.Column(a, server.OIDInt4, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int4(p.Shard) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.Seq) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Text(p.Resource) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Text(p.Owner) })
	server.Column(a, server.OIDInt2, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int2(uint16(p.Priority)) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.Token) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.TTL) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.JoinedAt) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.GrantedAt) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.ExpiresAt) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.OfferedUntil) })
	server.Column(a, server.OIDBytes, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Text(p.Node) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.Incarnation) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.Conn) })
	server.Column(a, server.OIDBool, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Bool(p.Bound) })
	server.Column(a, server.OIDInt8, all, func(a *server.Arrays, p *backend.ClaimPlace) { a.Int8(p.GoneAt) })
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

// load reads the places of shards, which are in order, and then proves that they were this writer's
// all the time.
func (r *writer) load(ctx context.Context, shards []int, visit func(backend.ClaimPlace)) (now uint64, err error) {
	ranges := adjoining(shards)
	limit, cancel := context.WithTimeout(ctx, server.BulkTimeout)
	defer cancel()
	int4 := func(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
	err = r.conn.Pipelined(limit, r.server.Stall(), func(p *pgconn.Pipeline) {
		for _, s := range ranges {
			p.SendQueryPrepared(readClaims, [][]byte{int4(s[0]), int4(s[1])}, server.BinaryForm, server.BinaryForm)
		}
		p.SendQueryPrepared(proveClaims, [][]byte{binary.BigEndian.AppendUint64(nil, uint64(r.id))}, server.BinaryForm, server.BinaryForm)
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

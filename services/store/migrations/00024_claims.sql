-- Claims: who holds and who waits for resources, by the shard that a resource hashes to (postgres/claims.go).

-- +goose Up
-- A run is a store's right to change claims, for as long as its row is here. Each commit locks the row; who takes shards from a run deletes it first. pid and backend_start are
-- the connection that it commits on: a run whose backend is gone is over.
CREATE TABLE pushmesh.claim_run (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    store_id      text        COLLATE "C" NOT NULL,
    incarnation   bigint      NOT NULL,
    pid           integer     NOT NULL,
    backend_start timestamptz NOT NULL,
    began         timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- run has the shard; null, or one that is not in claim_run: nobody has it. Numbers below next were given away.
CREATE TABLE pushmesh.claim_shard (
    shard integer PRIMARY KEY,
    run   bigint,
    next  bigint  NOT NULL DEFAULT 1
) WITH (fillfactor = 50);
INSERT INTO pushmesh.claim_shard (shard) SELECT generate_series(0, 1023);

-- An owner's place at a resource. Times and durations in microseconds; 0 is none; numbers from 2^63 on are negative. Names are bytes: nothing that somebody calls himself can make a
-- commit of many fail. There is no index but the key, which is never used again: what died lies in nobody's way.
CREATE TABLE pushmesh.claim_place (
    shard         integer  NOT NULL,
    priority      smallint NOT NULL,
    bound         boolean  NOT NULL,
    seq           bigint   NOT NULL,
    token         bigint   NOT NULL,
    ttl           bigint   NOT NULL,
    joined_at     bigint   NOT NULL,
    granted_at    bigint   NOT NULL,
    expires_at    bigint   NOT NULL,
    offered_until bigint   NOT NULL,
    incarnation   bigint   NOT NULL,
    conn          bigint   NOT NULL,
    gone_at       bigint   NOT NULL,
    resource      bytea    NOT NULL,
    owner         bytea    NOT NULL,
    node          bytea    NOT NULL,
    PRIMARY KEY (shard, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);

-- For people.
CREATE VIEW pushmesh.claim AS
SELECT p.shard, p.seq, encode(p.resource, 'escape') AS resource, encode(p.owner, 'escape') AS owner, p.priority, nullif(p.token, 0) AS token,
    to_timestamp(p.joined_at / 1e6) AS joined_at, to_timestamp(nullif(p.granted_at, 0) / 1e6) AS granted_at, to_timestamp(nullif(p.expires_at, 0) / 1e6) AS expires_at,
    to_timestamp(nullif(p.offered_until, 0) / 1e6) AS offered_until, encode(p.node, 'escape') AS node, p.conn, p.bound, to_timestamp(nullif(p.gone_at, 0) / 1e6) AS gone_at, r.store_id
FROM pushmesh.claim_place AS p JOIN pushmesh.claim_shard AS s USING (shard) LEFT JOIN pushmesh.claim_run AS r ON r.id = s.run;

-- Gives shards to a run: outcome is 'ok' in a row for each, with the first of its numbers; or one row says 'fenced' or 'taken'. Everybody locks shards in their order, then runs in theirs.
-- Deleting a run waits for its commit under way.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.claims_take(mine bigint, wanted integer[], force boolean) RETURNS TABLE (outcome text, shard integer, next bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    others bigint[];
BEGIN
    PERFORM FROM pushmesh.claim_shard AS s WHERE s.shard = ANY (wanted) ORDER BY s.shard FOR UPDATE;
    others := ARRAY(SELECT DISTINCT s.run FROM pushmesh.claim_shard AS s JOIN pushmesh.claim_run AS r ON r.id = s.run WHERE s.shard = ANY (wanted) AND r.id <> mine);
    -- Of other roles' backends the start is not told: they count as those that are looked for.
    IF NOT force AND EXISTS (SELECT FROM pushmesh.claim_run AS r JOIN pg_stat_activity AS a ON a.pid = r.pid AND coalesce(a.backend_start, r.backend_start) = r.backend_start
        WHERE r.id = ANY (others)) THEN
        RETURN QUERY SELECT CASE WHEN EXISTS (SELECT FROM pushmesh.claim_run AS r WHERE r.id = mine) THEN 'taken' ELSE 'fenced' END, 0, 0::bigint;
        RETURN;
    END IF;
    PERFORM FROM pushmesh.claim_run AS r WHERE r.id = ANY (others || mine) ORDER BY r.id FOR UPDATE;
    IF NOT EXISTS (SELECT FROM pushmesh.claim_run AS r WHERE r.id = mine) THEN
        RETURN QUERY SELECT 'fenced', 0, 0::bigint;
        RETURN;
    END IF;
    DELETE FROM pushmesh.claim_run AS r WHERE r.id = ANY (others);
    RETURN QUERY UPDATE pushmesh.claim_shard AS s SET run = mine, next = s.next + 4294967296 WHERE s.shard = ANY (wanted)
        RETURNING 'ok', s.shard, s.next - 4294967296;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION pushmesh.claims_take(bigint, integer[], boolean);
DROP VIEW pushmesh.claim;
DROP TABLE pushmesh.claim_place, pushmesh.claim_shard, pushmesh.claim_run;

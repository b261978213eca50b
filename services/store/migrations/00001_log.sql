-- The log: what writers of shards commit. Times are Unix microseconds.

-- +goose Up
CREATE SCHEMA IF NOT EXISTS pushmesh;

-- Base epoch of each shard, and the last commit that its checkpoint covers.
CREATE TABLE pushmesh.shard (
    shard   integer PRIMARY KEY,
    epoch   bigint  NOT NULL,
    covered bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

INSERT INTO pushmesh.shard (shard, epoch)
SELECT s, (extract(epoch FROM now()) * 1000000)::bigint
FROM generate_series(0, 1023) AS s;

-- Who claimed which shard last. The right itself is the advisory lock of the backend: this only says who had it.
CREATE TABLE pushmesh.owner (
    shard       integer PRIMARY KEY,
    store_id    text   NOT NULL,
    incarnation bigint NOT NULL,
    address     text   NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Backends that append, so that those of a silent store can be terminated. backend_start tells a pid from its next user.
CREATE TABLE pushmesh.writer (
    pid           integer     NOT NULL,
    backend_start timestamptz NOT NULL,
    store_id      text        NOT NULL,
    incarnation   bigint      NOT NULL,
    PRIMARY KEY (pid, backend_start)
);

-- Checkpoints: heads of topics and positions of ordered producers, as of shard.covered.
CREATE TABLE pushmesh.topic (
    shard  integer NOT NULL,
    topic  text COLLATE "C" NOT NULL,
    epoch  bigint  NOT NULL,
    head   bigint  NOT NULL,
    oldest bigint  NOT NULL,
    PRIMARY KEY (shard, topic)
) WITH (fillfactor = 70);

CREATE TABLE pushmesh.producer (
    shard        integer NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    producer     uuid    NOT NULL,
    producer_seq bigint  NOT NULL,
    epoch        bigint  NOT NULL,
    seq          bigint  NOT NULL,
    at           bigint  NOT NULL,
    PRIMARY KEY (shard, topic, producer)
) WITH (fillfactor = 70);

-- Positions of producers that no record of the log tells; gone once a checkpoint covers their commit.
CREATE TABLE pushmesh.mark (
    shard        integer NOT NULL,
    commit       bigint  NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    producer     uuid    NOT NULL,
    producer_seq bigint  NOT NULL,
    epoch        bigint  NOT NULL,
    seq          bigint  NOT NULL,
    at           bigint  NOT NULL
);
CREATE INDEX mark_commit ON pushmesh.mark (shard, commit);

-- A run is a contiguous piece of one topic's log, written by one commit. A table for each retention class, a partition for each
-- slice of time: space comes back by dropping a slice. packed is read by pushmesh.unpack; it holds many small payloads, which
-- compressing row by row would only slow down.
-- +goose StatementBegin
DO $$
DECLARE
    class text;
BEGIN
    FOREACH class IN ARRAY ARRAY['hour', 'day', 'week', 'month', 'year'] LOOP
        EXECUTE format($sql$
            CREATE TABLE pushmesh.log_%1$s (
                epoch     bigint  NOT NULL,
                first_seq bigint  NOT NULL,
                last_seq  bigint  NOT NULL,
                commit    bigint  NOT NULL,
                at        bigint  NOT NULL,
                shard     integer NOT NULL,
                topic     text COLLATE "C" NOT NULL,
                packed    bytea   NOT NULL
            ) PARTITION BY RANGE (at)$sql$, class);
        EXECUTE format('ALTER TABLE pushmesh.log_%s ALTER COLUMN packed SET STORAGE EXTERNAL', class);
        EXECUTE format('CREATE INDEX log_%1$s_topic ON pushmesh.log_%1$s (topic, epoch, last_seq)', class);
        EXECUTE format('CREATE INDEX log_%1$s_commit ON pushmesh.log_%1$s (shard, commit)', class);
    END LOOP;
    -- Dedupe keys lie in the slice of the time until which they count.
    FOREACH class IN ARRAY ARRAY['short', 'long'] LOOP
        EXECUTE format($sql$
            CREATE TABLE pushmesh.key_%1$s (
                hash         uuid    NOT NULL,
                message_id   uuid    NOT NULL,
                epoch        bigint  NOT NULL,
                seq          bigint  NOT NULL,
                published_at bigint  NOT NULL,
                until        bigint  NOT NULL,
                shard        integer NOT NULL
            ) PARTITION BY RANGE (until)$sql$, class);
        EXECUTE format('CREATE INDEX key_%1$s_hash ON pushmesh.key_%1$s (hash)', class);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- Ids of batches, to learn the outcome of a commit whose answer was lost.
CREATE TABLE pushmesh.batch (
    id uuid   NOT NULL,
    at bigint NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX batch_id ON pushmesh.batch (id);

-- class is that of backend.Class.
CREATE VIEW pushmesh.log AS
          SELECT 0 AS class, l.* FROM pushmesh.log_hour AS l
UNION ALL SELECT 1 AS class, l.* FROM pushmesh.log_day AS l
UNION ALL SELECT 2 AS class, l.* FROM pushmesh.log_week AS l
UNION ALL SELECT 3 AS class, l.* FROM pushmesh.log_month AS l
UNION ALL SELECT 4 AS class, l.* FROM pushmesh.log_year AS l;

-- +goose Down
DROP SCHEMA pushmesh CASCADE;

-- Checkpoints are appended as well: what a writer stores at a time is a row, and nothing is updated while messages are published. Like pages of cursors
-- they are packed, and now and then put into pushmesh.topic, pushmesh.producer and pushmesh.shard (postgres/checkpoint_fold.go).

-- +goose Up
CREATE SEQUENCE pushmesh.checkpoint_id;

-- Arrays with an element for each topic, for each position of an ordered producer, and for each shard. Of several the greatest holds: by epoch, then head and
-- oldest, producer_seq, covered. Positions from before forget are void.
CREATE TABLE pushmesh.checkpoint (
    id              bigint   PRIMARY KEY,
    forget          bigint   NOT NULL,
    topic_shards    integer[] NOT NULL,
    topics          text[]   NOT NULL,
    topic_epochs    bigint[] NOT NULL,
    heads           bigint[] NOT NULL,
    oldest          bigint[] NOT NULL,
    producer_shards integer[] NOT NULL,
    producer_topics text[]   NOT NULL,
    producers       uuid[]   NOT NULL,
    producer_seqs   bigint[] NOT NULL,
    producer_epochs bigint[] NOT NULL,
    seqs            bigint[] NOT NULL,
    ats             bigint[] NOT NULL,
    shards          integer[] NOT NULL,
    shard_epochs    bigint[] NOT NULL,
    covered         bigint[] NOT NULL
) PARTITION BY RANGE (id);

-- Checkpoints below through are void.
CREATE TABLE pushmesh.checkpoint_folded (
    through bigint  NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.checkpoint_folded (through) VALUES (0);

CREATE VIEW pushmesh.checkpoint_topic AS
SELECT e.shard, e.topic COLLATE "C" AS topic, e.epoch, e.head, e.oldest, c.id
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.topic_shards, c.topics, c.topic_epochs, c.heads, c.oldest) AS e (shard, topic, epoch, head, oldest);

CREATE VIEW pushmesh.checkpoint_producer AS
SELECT e.shard, e.topic COLLATE "C" AS topic, e.producer, e.producer_seq, e.epoch, e.seq, e.at, c.id
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.producer_shards, c.producer_topics, c.producers, c.producer_seqs, c.producer_epochs, c.seqs, c.ats)
    AS e (shard, topic, producer, producer_seq, epoch, seq, at);

CREATE VIEW pushmesh.checkpoint_shard AS
SELECT e.shard, e.epoch, e.covered, c.id
FROM pushmesh.checkpoint_folded AS f JOIN pushmesh.checkpoint AS c ON c.id >= f.through
CROSS JOIN LATERAL unnest(c.shards, c.shard_epochs, c.covered) AS e (shard, epoch, covered);

-- +goose Down
INSERT INTO pushmesh.topic AS t (shard, topic, epoch, head, oldest)
SELECT DISTINCT ON (shard, topic) shard, topic, epoch, max(head), max(oldest) FROM pushmesh.checkpoint_topic
GROUP BY shard, topic, epoch ORDER BY shard, topic, epoch DESC
ON CONFLICT (shard, topic) DO UPDATE SET epoch = excluded.epoch,
    head = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.head, excluded.head) ELSE excluded.head END,
    oldest = CASE WHEN t.epoch = excluded.epoch THEN greatest(t.oldest, excluded.oldest) ELSE excluded.oldest END
WHERE t.epoch <= excluded.epoch;

INSERT INTO pushmesh.producer AS p (shard, topic, producer, producer_seq, epoch, seq, at)
SELECT DISTINCT ON (shard, topic, producer) shard, topic, producer, producer_seq, epoch, seq, at FROM pushmesh.checkpoint_producer
ORDER BY shard, topic, producer, epoch DESC, producer_seq DESC
ON CONFLICT (shard, topic, producer) DO UPDATE
    SET producer_seq = excluded.producer_seq, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at
WHERE (p.epoch, p.producer_seq) < (excluded.epoch, excluded.producer_seq);

UPDATE pushmesh.shard AS s SET covered = c.covered
FROM (SELECT shard, epoch, max(covered) AS covered FROM pushmesh.checkpoint_shard GROUP BY shard, epoch) AS c
WHERE s.shard = c.shard AND s.epoch = c.epoch AND s.covered < c.covered;

DROP VIEW pushmesh.checkpoint_topic, pushmesh.checkpoint_producer, pushmesh.checkpoint_shard;
DROP TABLE pushmesh.checkpoint, pushmesh.checkpoint_folded;
DROP SEQUENCE pushmesh.checkpoint_id;

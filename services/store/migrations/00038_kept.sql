-- The newest messages of topics that keep them beyond the retention, written by the commits that write the log.

-- +goose Up

-- packed is a run of one record. A new message takes the place of the one before in the same row, mostly on the same page: room is left for that.
CREATE TABLE pushmesh.kept (
    epoch  bigint NOT NULL,
    seq    bigint NOT NULL,
    at     bigint NOT NULL,
    until  bigint NOT NULL,
    shard  int    NOT NULL,
    topic  text COLLATE "C" NOT NULL,
    packed bytea  NOT NULL,
    PRIMARY KEY (shard, topic)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- +goose Down
DROP TABLE pushmesh.kept;

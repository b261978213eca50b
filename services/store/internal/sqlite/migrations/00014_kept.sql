-- The newest messages of topics that keep them beyond the retention, written by the commits that write the log.

-- +goose Up

-- packed is a run of one record.
CREATE TABLE kept (
  shard  INTEGER NOT NULL,
  topic  TEXT NOT NULL,
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  until  INTEGER NOT NULL,
  packed BLOB NOT NULL,
  PRIMARY KEY (shard, topic)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE kept;

-- Claims: who holds and who waits for resources, by the shard that a resource hashes to.

-- +goose Up
-- A run is the right to change claims, for as long as its row is here. Ids are never used again.
CREATE TABLE claim_run (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  store_id    TEXT NOT NULL,
  incarnation INTEGER NOT NULL
);

-- run has the shard; null, or one that is not in claim_run: nobody has it. Numbers below next were given away.
CREATE TABLE claim_shard (
  shard INTEGER PRIMARY KEY,
  run   INTEGER,
  next  INTEGER NOT NULL DEFAULT 1
);
WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 1023) INSERT INTO claim_shard (shard) SELECT n FROM s;

-- An owner's place at a resource. Times and durations in microseconds; 0 is none; numbers from 2^63 on are negative.
CREATE TABLE claim_place (
  shard         INTEGER NOT NULL,
  seq           INTEGER NOT NULL,
  resource      BLOB NOT NULL,
  owner         BLOB NOT NULL,
  priority      INTEGER NOT NULL,
  token         INTEGER NOT NULL,
  ttl           INTEGER NOT NULL,
  joined_at     INTEGER NOT NULL,
  granted_at    INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  offered_until INTEGER NOT NULL,
  node          BLOB NOT NULL,
  incarnation   INTEGER NOT NULL,
  conn          INTEGER NOT NULL,
  bound         INTEGER NOT NULL,
  gone_at       INTEGER NOT NULL,
  PRIMARY KEY (shard, seq)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE claim_place;
DROP TABLE claim_shard;
DROP TABLE claim_run;

-- +goose Up

-- commit_no is the last commit that topic_head and producer cover.
CREATE TABLE shard (
  shard     INTEGER PRIMARY KEY,
  epoch     INTEGER NOT NULL,
  commit_no INTEGER NOT NULL
);

CREATE TABLE topic_head (
  topic  TEXT PRIMARY KEY,
  shard  INTEGER NOT NULL,
  epoch  INTEGER NOT NULL,
  head   INTEGER NOT NULL,
  oldest INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX topic_head_shard ON topic_head (shard);

CREATE TABLE producer (
  topic        TEXT NOT NULL,
  id           BLOB NOT NULL,
  shard        INTEGER NOT NULL,
  producer_seq INTEGER NOT NULL,
  epoch        INTEGER NOT NULL,
  seq          INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  PRIMARY KEY (topic, id)
) WITHOUT ROWID;
CREATE INDEX producer_shard ON producer (shard);

-- Positions moved by a commit without a record of the log; a checkpoint takes them over.
CREATE TABLE producer_mark (
  shard        INTEGER NOT NULL,
  commit_no    INTEGER NOT NULL,
  topic        TEXT NOT NULL,
  id           BLOB NOT NULL,
  producer_seq INTEGER NOT NULL,
  epoch        INTEGER NOT NULL,
  seq          INTEGER NOT NULL,
  at           INTEGER NOT NULL
);
CREATE INDEX producer_mark_shard ON producer_mark (shard, commit_no);

-- Looked for by id only after a commit of unknown outcome, the latest first: no index to keep.
CREATE TABLE batch (
  id BLOB NOT NULL,
  at INTEGER NOT NULL
);

-- A row for each table log_<class>_<starts> and key_<class>_<starts>. A slice being dropped is emptied piece by piece first.
CREATE TABLE slice (
  kind     TEXT NOT NULL,
  class    INTEGER NOT NULL,
  starts   INTEGER NOT NULL,
  ends     INTEGER NOT NULL,
  dropping INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (kind, class, starts)
) WITHOUT ROWID;

-- expires_at is 0 while an edge holds the session.
CREATE TABLE session (
  user        TEXT NOT NULL,
  name        TEXT NOT NULL,
  generation  INTEGER NOT NULL,
  edge        TEXT NOT NULL,
  connection  INTEGER NOT NULL,
  attached_at INTEGER NOT NULL,
  ttl         INTEGER NOT NULL,
  expires_at  INTEGER NOT NULL,
  PRIMARY KEY (user, name)
) WITHOUT ROWID;
CREATE INDEX session_expires ON session (expires_at) WHERE expires_at > 0;
CREATE INDEX session_edge ON session (edge) WHERE edge <> '';

CREATE TABLE session_cursor (
  user   TEXT NOT NULL,
  name   TEXT NOT NULL,
  topic  TEXT NOT NULL,
  cursor BLOB NOT NULL,
  PRIMARY KEY (user, name, topic)
) WITHOUT ROWID;

CREATE TABLE session_filter (
  user   TEXT NOT NULL,
  name   TEXT NOT NULL,
  filter TEXT NOT NULL,
  PRIMARY KEY (user, name, filter)
) WITHOUT ROWID;

CREATE TABLE dead_letter (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  topic    TEXT NOT NULL,
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  body     BLOB,
  reason   INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  user     TEXT NOT NULL,
  session  TEXT NOT NULL,
  at       INTEGER NOT NULL,
  UNIQUE (user, session, topic, epoch, seq)
);

CREATE TABLE namespace (
  prefix  TEXT PRIMARY KEY,
  policy  BLOB NOT NULL,
  builtin INTEGER NOT NULL,
  version INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE namespace_version (version INTEGER NOT NULL);
INSERT INTO namespace_version VALUES (1);

-- Models that rank: files, versioned by name. A version is never used twice, also after it was deleted.

-- +goose Up
-- Grows with every change of the set.
CREATE TABLE model_revision (revision INTEGER NOT NULL);
INSERT INTO model_revision VALUES (1);

-- The highest version that a name ever had.
CREATE TABLE model_name (
  name TEXT PRIMARY KEY,
  last INTEGER NOT NULL
) WITHOUT ROWID;

-- about is the model as it is listed, a pushmesh.v1.Model.
CREATE TABLE model (
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  about   BLOB NOT NULL,
  PRIMARY KEY (name, version)
) WITHOUT ROWID;

-- The file, in parts of 1 MiB (the last one may be shorter), from 0.
CREATE TABLE model_part (
  name    TEXT NOT NULL,
  version INTEGER NOT NULL,
  part    INTEGER NOT NULL,
  data    BLOB NOT NULL,
  UNIQUE (name, version, part)
);

-- +goose Down
DROP TABLE model_part;
DROP TABLE model;
DROP TABLE model_name;
DROP TABLE model_revision;

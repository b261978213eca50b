-- Tokens that are void before they end: those of a user (issuer and token_id are ''), or a single one (user is '').

-- +goose Up
-- restored: it is void no more. The row stays until its time is over, so that whoever has missed that hears of it.
CREATE TABLE revocation (
  user     TEXT NOT NULL,
  issuer   TEXT NOT NULL,
  token_id TEXT NOT NULL,
  reason   TEXT NOT NULL,
  at       INTEGER NOT NULL,
  until    INTEGER NOT NULL,
  restored INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  PRIMARY KEY (user, issuer, token_id)
) WITHOUT ROWID;
CREATE INDEX revocation_version_key ON revocation (version);
CREATE INDEX revocation_until_key ON revocation (until);

-- One row: the version of the last change.
CREATE TABLE revocation_version (version INTEGER NOT NULL);
INSERT INTO revocation_version VALUES (1);

-- +goose Down
DROP TABLE revocation;
DROP TABLE revocation_version;

-- Tokens that are void before they end: those of a user (issuer and token_id are ''), or a single one (user_id is '').

-- +goose Up

-- restored: it is void no more. The row stays until its time is over, so that whoever has missed that hears of it.
CREATE TABLE pushmesh.revocation (
    user_id  text COLLATE "C" NOT NULL,
    issuer   text COLLATE "C" NOT NULL,
    token_id text COLLATE "C" NOT NULL,
    reason   text    NOT NULL,
    at       bigint  NOT NULL,
    until    bigint  NOT NULL,
    restored boolean NOT NULL,
    version  bigint  NOT NULL,
    PRIMARY KEY (user_id, issuer, token_id)
);
CREATE INDEX revocation_version_key ON pushmesh.revocation (version);
CREATE INDEX revocation_until_key ON pushmesh.revocation (until);

-- One row: the version of the last change.
CREATE TABLE pushmesh.revocation_version (
    version bigint  NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.revocation_version (version) VALUES (1);

-- +goose Down
DROP TABLE pushmesh.revocation, pushmesh.revocation_version;

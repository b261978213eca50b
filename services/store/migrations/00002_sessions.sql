-- Durable sessions with their cursors, dead letters, and policies.

-- +goose Up

-- edge '' is held by nobody: expires_at counts then.
CREATE TABLE pushmesh.session (
    user_id       text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    generation    bigint NOT NULL,
    connection_id bigint NOT NULL,
    attached_at   bigint NOT NULL,
    expires_at    bigint NOT NULL,
    ttl           bigint NOT NULL,
    edge          text   NOT NULL,
    PRIMARY KEY (user_id, name)
) WITH (fillfactor = 70);
CREATE INDEX session_edge ON pushmesh.session (edge) WHERE edge <> '';
CREATE INDEX session_expiry ON pushmesh.session (expires_at) WHERE edge = '';

-- acked are inclusive ranges above floor, two numbers each; attempts belong to tried, one each.
CREATE TABLE pushmesh.cursor (
    user_id  text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    epoch    bigint    NOT NULL,
    floor    bigint    NOT NULL,
    acked    bigint[]  NOT NULL,
    tried    bigint[]  NOT NULL,
    attempts integer[] NOT NULL,
    PRIMARY KEY (user_id, name, topic)
) WITH (fillfactor = 70);

CREATE TABLE pushmesh.session_filter (
    user_id text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    filter  text COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, name, filter)
);

CREATE TABLE pushmesh.dead_letter (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch    bigint  NOT NULL,
    seq      bigint  NOT NULL,
    at       bigint  NOT NULL,
    reason   integer NOT NULL,
    attempts integer NOT NULL,
    topic    text COLLATE "C" NOT NULL,
    user_id  text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    body     bytea   NOT NULL,
    UNIQUE (user_id, session, topic, epoch, seq)
);

CREATE TABLE pushmesh.namespace (
    prefix  text COLLATE "C" PRIMARY KEY,
    version bigint  NOT NULL,
    builtin boolean NOT NULL,
    policy  jsonb   NOT NULL
);

-- One row: the version of the whole set.
CREATE TABLE pushmesh.namespace_version (
    version bigint  NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.namespace_version (version) VALUES (1);

-- +goose Down
DROP TABLE pushmesh.session, pushmesh.cursor, pushmesh.session_filter, pushmesh.dead_letter, pushmesh.namespace, pushmesh.namespace_version;

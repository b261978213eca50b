-- What was taken from the outbox and can't be published yet, because the database or the owner of its shard is away. Rows are deleted once they are
-- published or refused for good. Everything of a shard leaves in the order of ids.

-- +goose Up
CREATE TABLE pushmesh.outbox_waiting (
    shard       integer  NOT NULL,
    id          bigint   NOT NULL,
    size        integer  NOT NULL,
    message_id  uuid     NOT NULL,
    at          bigint   NOT NULL,
    ttl         bigint   NOT NULL,
    deliver_at  bigint   NOT NULL,
    priority    smallint NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    dedupe_key  text COLLATE "C" NOT NULL,
    traceparent text     NOT NULL,
    headers     jsonb,
    payload     bytea    NOT NULL,
    PRIMARY KEY (shard, id)
);
ALTER TABLE pushmesh.outbox_waiting ALTER COLUMN payload SET STORAGE EXTERNAL;

-- +goose Down
DROP TABLE pushmesh.outbox_waiting;

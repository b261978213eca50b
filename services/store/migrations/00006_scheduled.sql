-- Messages that wait for their time, in slices by when they are due. The batch that appends or cancels one deletes its row.

-- +goose Up
CREATE TABLE pushmesh.scheduled (
    due          bigint  NOT NULL,
    published_at bigint  NOT NULL,
    ttl          bigint  NOT NULL,
    message_id   uuid    NOT NULL,
    shard        integer NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    traceparent  text    NOT NULL,
    body         bytea   NOT NULL,
    PRIMARY KEY (due, message_id)
) PARTITION BY RANGE (due);
CREATE INDEX scheduled_id ON pushmesh.scheduled (message_id);

-- +goose Down
DROP TABLE pushmesh.scheduled;

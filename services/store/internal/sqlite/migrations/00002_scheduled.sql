-- Messages that wait for their time. The batch that appends or cancels one deletes its row.

-- +goose Up
CREATE TABLE scheduled (
  due          INTEGER NOT NULL,
  message_id   BLOB NOT NULL,
  shard        INTEGER NOT NULL,
  topic        TEXT NOT NULL,
  published_at INTEGER NOT NULL,
  ttl          INTEGER NOT NULL,
  traceparent  TEXT NOT NULL,
  body         BLOB NOT NULL,
  UNIQUE (due, message_id)
);
CREATE INDEX scheduled_id ON scheduled (message_id);

-- +goose Down
DROP TABLE scheduled;

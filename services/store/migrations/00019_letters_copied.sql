-- Dead letters are copied to a topic, each once: the batch that appends the copy sets the flag.

-- +goose Up
ALTER TABLE pushmesh.dead_letter ADD COLUMN copied boolean NOT NULL DEFAULT false;
CREATE INDEX dead_letter_uncopied ON pushmesh.dead_letter (id) WHERE NOT copied;

-- +goose Down
ALTER TABLE pushmesh.dead_letter DROP COLUMN copied;

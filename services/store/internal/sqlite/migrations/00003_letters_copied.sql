-- Dead letters are copied to a topic, each once: the batch that appends the copy sets the flag.

-- +goose Up
ALTER TABLE dead_letter ADD COLUMN copied INTEGER NOT NULL DEFAULT 0;
CREATE INDEX dead_letter_uncopied ON dead_letter (id) WHERE copied = 0;

-- +goose Down
DROP INDEX dead_letter_uncopied;
ALTER TABLE dead_letter DROP COLUMN copied;

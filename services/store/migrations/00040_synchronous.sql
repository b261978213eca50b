-- Whether commits waited for a standby when a store looked last: a promoted standby has what this says, since it was told with the log. Null: no store has
-- looked yet.

-- +goose Up
ALTER TABLE pushmesh.server ADD COLUMN IF NOT EXISTS synchronous boolean;

-- +goose Down
ALTER TABLE pushmesh.server DROP COLUMN synchronous;

-- Sessions have quotas: in all, and by the address of the client that created one (origin; '' is not counted by address).

-- +goose Up
-- used: a filter or cursor was written once. What never was ends soon after its connection. created_at 0: before there was this column.
ALTER TABLE session ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN used INTEGER NOT NULL DEFAULT 1;
ALTER TABLE session ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

-- How many sessions there are of an origin; '' counts all.
CREATE TABLE session_count (
  origin TEXT PRIMARY KEY,
  n      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO session_count (origin, n) SELECT '', count(*) FROM session;

-- +goose StatementBegin
CREATE TRIGGER session_came AFTER INSERT ON session BEGIN
  UPDATE session_count SET n = n + 1 WHERE origin = '';
  INSERT INTO session_count (origin, n) SELECT NEW.origin, 1 WHERE NEW.origin <> '' ON CONFLICT (origin) DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER session_went AFTER DELETE ON session BEGIN
  UPDATE session_count SET n = n - 1 WHERE origin = '' OR origin = OLD.origin;
  DELETE FROM session_count WHERE origin = OLD.origin AND origin <> '' AND n = 0;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER session_came;
DROP TRIGGER session_went;
DROP TABLE session_count;
ALTER TABLE session DROP COLUMN origin;
ALTER TABLE session DROP COLUMN used;
ALTER TABLE session DROP COLUMN created_at;

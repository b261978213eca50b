-- Teams (user is '') and the users in them.

-- +goose Up
-- removed: it is there no more. The row stays for a while, so that whoever has missed that hears of it. born is the version with which a team was made;
-- when it ends, the rows of its users go.
CREATE TABLE team_entry (
  team    TEXT NOT NULL,
  user    TEXT NOT NULL,
  removed INTEGER NOT NULL,
  version INTEGER NOT NULL,
  born    INTEGER NOT NULL,
  grants  BLOB NOT NULL,
  PRIMARY KEY (team, user)
) WITHOUT ROWID;
CREATE INDEX team_entry_user_key ON team_entry (user, team);
CREATE INDEX team_entry_version_key ON team_entry (version);
CREATE INDEX team_entry_removed_key ON team_entry (version) WHERE removed;

-- One row: the version of the last change, and up to which version rows that were removed may be gone.
CREATE TABLE team_version (version INTEGER NOT NULL, gone INTEGER NOT NULL);
INSERT INTO team_version VALUES (1, 0);

-- +goose Down
DROP TABLE team_entry;
DROP TABLE team_version;

-- Teams (user_id is '') and the users in them.

-- +goose Up

-- removed: it is there no more. The row stays for a while, so that whoever has missed that hears of it. born is the version with which a team was made;
-- when it ends, the rows of its users go.
CREATE TABLE pushmesh.team_entry (
    team    text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    removed boolean NOT NULL,
    version bigint  NOT NULL,
    born    bigint  NOT NULL,
    grants  bytea   NOT NULL,
    PRIMARY KEY (team, user_id)
);
CREATE INDEX team_entry_user_key ON pushmesh.team_entry (user_id, team);
CREATE INDEX team_entry_version_key ON pushmesh.team_entry (version);
CREATE INDEX team_entry_removed_key ON pushmesh.team_entry (version) WHERE removed;

-- One row: the version of the last change, and up to which version rows that were removed may be gone.
CREATE TABLE pushmesh.team_version (
    version bigint  NOT NULL,
    gone    bigint  NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.team_version (version, gone) VALUES (1, 0);

-- +goose Down
DROP TABLE pushmesh.team_entry, pushmesh.team_version;

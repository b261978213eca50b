-- A mesh may have several databases, each with some of the shards. The first, home, holds the map, and what belongs to no shard.

-- +goose Up

-- What this database is to its mesh; empty: it has not been opened as one of several.
CREATE TABLE pushmesh.database (
    name text    NOT NULL,
    id   boolean PRIMARY KEY DEFAULT true CHECK (id)
);

-- held says that the shard's data is here: only then may it be claimed. Each database knows it of itself, so that an old map does no harm.
ALTER TABLE pushmesh.shard ADD COLUMN held boolean NOT NULL DEFAULT true;

-- Shards that are elsewhere than at home. moving: nobody shall own it.
CREATE TABLE pushmesh.placement (
    shard    integer PRIMARY KEY,
    database text    NOT NULL,
    moving   boolean NOT NULL
);

-- +goose Down
DROP TABLE pushmesh.placement, pushmesh.database;
ALTER TABLE pushmesh.shard DROP COLUMN held;

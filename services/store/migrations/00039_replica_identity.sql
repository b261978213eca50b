-- Where a publication has all tables (Debezium, upgrades by logical replication), Postgres refuses to delete from one without a key unless it is said what
-- tells its rows apart. Without such a publication this costs nothing.

-- +goose Up
ALTER TABLE pushmesh.mark REPLICA IDENTITY FULL;

-- +goose Down
ALTER TABLE pushmesh.mark REPLICA IDENTITY DEFAULT;

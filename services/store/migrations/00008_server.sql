-- Which server the log was last written on. A restored backup and a promoted standby have another timeline, a copy by pg_dump another system:
-- what was acknowledged may be missing there, and only an operator knows.

-- +goose Up
CREATE FUNCTION pushmesh.this_server(OUT system bigint, OUT timeline integer)
LANGUAGE sql VOLATILE AS $$
    SELECT c.system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer FROM pg_control_system() AS c
$$;

CREATE TABLE pushmesh.server (
    system   bigint  NOT NULL,
    timeline integer NOT NULL,
    id       boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.server (system, timeline) SELECT system, timeline FROM pushmesh.this_server();

-- +goose Down
DROP TABLE pushmesh.server;
DROP FUNCTION pushmesh.this_server;

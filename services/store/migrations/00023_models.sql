-- Models that rank: files, versioned by name. A version is never used twice, also after it was deleted.

-- +goose Up
-- Grows with every change of the set; whoever changes it locks this row first.
CREATE TABLE pushmesh.model_revision (
    revision bigint  NOT NULL,
    id       boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.model_revision (revision) VALUES (1);

-- The highest version that a name ever had.
CREATE TABLE pushmesh.model_name (
    name text   COLLATE "C" PRIMARY KEY,
    last bigint NOT NULL
);

-- created_at in microseconds; described is how many bytes the row takes in a list.
CREATE TABLE pushmesh.model (
    name       text     COLLATE "C" NOT NULL,
    version    bigint   NOT NULL,
    format     integer  NOT NULL,
    columns    text[]   NOT NULL,
    trees      integer  NOT NULL,
    outputs    integer  NOT NULL,
    bytes      bigint   NOT NULL,
    digest     bytea    NOT NULL,
    created_at bigint   NOT NULL,
    comment    text     NOT NULL,
    described  bigint   NOT NULL,
    PRIMARY KEY (name, version)
);

-- The file, in parts of 1 MiB (the last one may be shorter), from 0.
CREATE TABLE pushmesh.model_part (
    name    text    COLLATE "C" NOT NULL,
    version bigint  NOT NULL,
    part    integer NOT NULL,
    data    bytea   NOT NULL,
    PRIMARY KEY (name, version, part),
    FOREIGN KEY (name, version) REFERENCES pushmesh.model ON DELETE CASCADE
);
ALTER TABLE pushmesh.model_part ALTER COLUMN data SET STORAGE EXTERNAL;

-- +goose Down
DROP TABLE pushmesh.model_part, pushmesh.model, pushmesh.model_name, pushmesh.model_revision;

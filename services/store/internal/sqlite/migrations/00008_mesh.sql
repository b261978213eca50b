-- Which mesh this database belongs to. Empty: no store has opened it since there are mesh ids.

-- +goose Up
CREATE TABLE mesh (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  name    TEXT NOT NULL,
  mesh_id TEXT NOT NULL
);

-- +goose Down
DROP TABLE mesh;

-- Which mesh this database belongs to: every database of a mesh holds the same. Empty: no store has opened it since there are mesh ids.

-- +goose Up
CREATE TABLE pushmesh.mesh (
    name    text    NOT NULL,
    mesh_id uuid    NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);

-- +goose Down
DROP TABLE pushmesh.mesh;

-- Sessions can be given to another owner. adopted_user and adopted_name say whose a session was before, so that a call that is repeated is known; ''
-- where it always was its owner's.

-- +goose Up
ALTER TABLE session ADD COLUMN adopted_user TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN adopted_name TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE session DROP COLUMN adopted_user;
ALTER TABLE session DROP COLUMN adopted_name;

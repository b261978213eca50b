-- Sessions can be given to another owner. adopted_user and adopted_name say whose a session was before, so that a call that is repeated is known; ''
-- where it always was its owner's.

-- +goose Up
ALTER TABLE pushmesh.session
    ADD COLUMN adopted_user text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN adopted_name text COLLATE "C" NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE pushmesh.session DROP COLUMN adopted_user, DROP COLUMN adopted_name;

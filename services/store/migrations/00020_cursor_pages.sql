-- Cursors are appended: each write of many cursors is a row, a page, and nothing is updated while sessions ACK. Pages are packed again, and now and
-- then put into pushmesh.cursor, by one store (postgres/cursor_fold.go); what that made void lies in slices that are dropped.

-- +goose Up

-- The session's first generation: what was written under an earlier one belonged to another session of this name.
ALTER TABLE pushmesh.session ADD COLUMN born bigint NOT NULL DEFAULT 0;

-- What holds of several is the greatest (generation, version).
ALTER TABLE pushmesh.cursor ADD COLUMN generation bigint NOT NULL DEFAULT 0, ADD COLUMN version bigint NOT NULL DEFAULT 0;

-- It must not be cached by sessions: whoever began after a page was committed has a greater number.
CREATE SEQUENCE pushmesh.cursor_page_id;

-- The arrays have an element for each cursor. version null: the id; else what was packed again, all of it older than that id. lists is '' where nothing
-- is ACKed or tried above floor, '-' where the cursor was removed, else 'acked|tried|attempts', arrays like those of pushmesh.cursor.
CREATE TABLE pushmesh.cursor_page (
    id          bigint   PRIMARY KEY,
    version     bigint,
    users       text[]   NOT NULL,
    names       text[]   NOT NULL,
    generations bigint[] NOT NULL,
    topics      text[]   NOT NULL,
    epochs      bigint[] NOT NULL,
    floors      bigint[] NOT NULL,
    lists       text[]   NOT NULL
) PARTITION BY RANGE (id);
ALTER TABLE pushmesh.cursor_page
    ALTER COLUMN users SET STORAGE EXTERNAL, ALTER COLUMN names SET STORAGE EXTERNAL, ALTER COLUMN generations SET STORAGE EXTERNAL,
    ALTER COLUMN topics SET STORAGE EXTERNAL, ALTER COLUMN epochs SET STORAGE EXTERNAL, ALTER COLUMN floors SET STORAGE EXTERNAL,
    ALTER COLUMN lists SET STORAGE EXTERNAL;

-- Pages below through are void.
CREATE TABLE pushmesh.cursor_folded (
    through bigint  NOT NULL,
    id      boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.cursor_folded (through) VALUES (0);

-- Every cursor of the pages, for people and for the way back.
CREATE VIEW pushmesh.paged_cursor AS
SELECT e.user_id, e.name, e.topic, e.generation, coalesce(p.version, p.id) AS version, e.epoch, e.floor, e.lists, p.id AS page, e.at
FROM pushmesh.cursor_folded AS f
JOIN pushmesh.cursor_page AS p ON p.id >= f.through
CROSS JOIN LATERAL unnest(p.users, p.names, p.generations, p.topics, p.epochs, p.floors, p.lists)
    WITH ORDINALITY AS e (user_id, name, generation, topic, epoch, floor, lists, at);

-- +goose Down
CREATE TEMPORARY TABLE newest ON COMMIT DROP AS
SELECT DISTINCT ON (c.user_id, c.name, c.topic) c.* FROM pushmesh.paged_cursor AS c
JOIN pushmesh.session AS s ON s.user_id = c.user_id COLLATE "C" AND s.name = c.name COLLATE "C" AND s.born <= c.generation
ORDER BY c.user_id, c.name, c.topic, c.generation DESC, c.version DESC, c.page DESC, c.at DESC;

DELETE FROM pushmesh.cursor AS c USING newest AS n
WHERE c.user_id = n.user_id COLLATE "C" AND c.name = n.name COLLATE "C" AND c.topic = n.topic COLLATE "C"
    AND (c.generation, c.version) <= (n.generation, n.version);

INSERT INTO pushmesh.cursor (user_id, name, topic, epoch, floor, acked, tried, attempts)
SELECT user_id, name, topic, epoch, floor, coalesce(nullif(split_part(lists, '|', 1), '')::bigint[], '{}'),
    coalesce(nullif(split_part(lists, '|', 2), '')::bigint[], '{}'), coalesce(nullif(split_part(lists, '|', 3), '')::integer[], '{}')
FROM newest WHERE lists <> '-'
ON CONFLICT DO NOTHING;

DROP VIEW pushmesh.paged_cursor;
DROP TABLE pushmesh.cursor_page, pushmesh.cursor_folded;
DROP SEQUENCE pushmesh.cursor_page_id;
DELETE FROM pushmesh.cursor AS c USING pushmesh.session AS s WHERE s.user_id = c.user_id AND s.name = c.name AND c.generation < s.born;
ALTER TABLE pushmesh.cursor DROP COLUMN generation, DROP COLUMN version;
ALTER TABLE pushmesh.session DROP COLUMN born;

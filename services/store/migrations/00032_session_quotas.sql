-- Sessions have quotas: in all, and by the address of the client that created one (origin; '' is not counted by address). Triggers count, so that a store
-- of an earlier version counts as well.

-- +goose Up

-- used: a filter or cursor was written once. What never was ends soon after its connection.
ALTER TABLE pushmesh.session ADD COLUMN origin text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN used boolean NOT NULL DEFAULT true;

-- How many sessions there are: the sum of n over the slots, of which there are several so that sessions that are created at the same time seldom wait
-- for each other. origin '' counts all.
CREATE TABLE pushmesh.session_count (
    origin text COLLATE "C" NOT NULL,
    slot   integer NOT NULL,
    n      bigint  NOT NULL,
    PRIMARY KEY (origin, slot)
) WITH (fillfactor = 50);
INSERT INTO pushmesh.session_count (origin, slot, n) SELECT '', 0, count(*) FROM pushmesh.session;

-- Counts are locked in the order of (origin, slot), after sessions.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.session_came() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pushmesh.session_count AS c (origin, slot, n)
    SELECT v.origin, hashtext(NEW.user_id || NEW.name) & 63, sum(v.n) FROM (
        SELECT ''::text AS origin, 1 AS n WHERE TG_OP = 'INSERT'
        UNION ALL SELECT NEW.origin, 1 WHERE NEW.origin <> ''
        UNION ALL SELECT OLD.origin, -1 WHERE TG_OP = 'UPDATE' AND OLD.origin <> '') AS v
    GROUP BY v.origin ORDER BY v.origin COLLATE "C"
    ON CONFLICT (origin, slot) DO UPDATE SET n = c.n + excluded.n;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION pushmesh.sessions_went() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pushmesh.session_count AS c (origin, slot, n)
    SELECT v.origin, v.slot, -count(*) FROM (
        SELECT ''::text AS origin, hashtext(user_id || name) & 63 AS slot FROM gone
        UNION ALL SELECT origin, hashtext(user_id || name) & 63 FROM gone WHERE origin <> '') AS v
    GROUP BY v.origin, v.slot ORDER BY v.origin COLLATE "C", v.slot
    ON CONFLICT (origin, slot) DO UPDATE SET n = c.n + excluded.n;
    DELETE FROM pushmesh.session_count WHERE n = 0 AND origin IN (SELECT origin FROM gone WHERE origin <> '');
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER session_came AFTER INSERT ON pushmesh.session FOR EACH ROW EXECUTE FUNCTION pushmesh.session_came();
CREATE TRIGGER session_moved AFTER UPDATE OF origin ON pushmesh.session FOR EACH ROW WHEN (OLD.origin <> NEW.origin)
    EXECUTE FUNCTION pushmesh.session_came();
CREATE TRIGGER sessions_went AFTER DELETE ON pushmesh.session REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
    EXECUTE FUNCTION pushmesh.sessions_went();

-- +goose Down
DROP TRIGGER session_came ON pushmesh.session;
DROP TRIGGER session_moved ON pushmesh.session;
DROP TRIGGER sessions_went ON pushmesh.session;
DROP FUNCTION pushmesh.session_came(), pushmesh.sessions_went();
DROP TABLE pushmesh.session_count;
ALTER TABLE pushmesh.session DROP COLUMN origin, DROP COLUMN used;

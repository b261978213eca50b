-- Slices are made, and taken away, by functions of the schema's owner, so that stores can have a role that may change no schema: it is granted what it
-- needs by whoever migrates (postgres/server/grant.go).

-- +goose Up

-- make_slice makes the partition [first, past) of a table, as stores name it.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.make_slice(parent text, first bigint, past bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    slice text := parent || '_' || first;
BEGIN
    IF parent !~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)$' OR first < 0 OR past <= first THEN
        RAISE EXCEPTION 'a slice of % from % to % can not be made', parent, first, past USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('CREATE TABLE pushmesh.%I (LIKE pushmesh.%I INCLUDING ALL)%s', slice, parent, CASE
        -- Runs of up to a page stay in their row: through TOAST, in pieces of 2 KB with an index of their own, they would cost a tenth more.
        WHEN parent ~ '^log_' THEN ' WITH (toast_tuple_target = 8160)'
        -- nothing dies in it, and it soon goes as a whole
        WHEN parent IN ('cursor_page', 'checkpoint') THEN ' WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)'
        ELSE '' END);
    EXECUTE format('ALTER TABLE pushmesh.%I ATTACH PARTITION pushmesh.%I FOR VALUES FROM (%s) TO (%s)', parent, slice, first, past);
END $$;
-- +goose StatementEnd

-- detach_slice takes a partition out of its table. It may not do so CONCURRENTLY, as an owner does: others wait for its locks, but not for long. false:
-- it holds scheduled messages still.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.detach_slice(slice text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    parent  text;
    pending boolean;
    holds   boolean;
BEGIN
    IF slice !~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)_[0-9]+$' THEN
        RAISE EXCEPTION '% is no slice', slice USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT p.relname, i.inhdetachpending INTO parent, pending FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_class AS p ON p.oid = i.inhparent
        WHERE c.relname = slice AND c.relnamespace = 'pushmesh'::regnamespace;
    IF parent IS NULL THEN
        RETURN true;
    ELSIF pending THEN -- an owner began it
        EXECUTE format('ALTER TABLE pushmesh.%I DETACH PARTITION pushmesh.%I FINALIZE', parent, slice);
        RETURN true;
    ELSIF parent = 'scheduled' THEN
        EXECUTE format('LOCK TABLE pushmesh.%I IN SHARE MODE', slice);
        EXECUTE format('SELECT EXISTS (SELECT FROM pushmesh.%I)', slice) INTO holds;
        IF holds THEN
            RETURN false;
        END IF;
    END IF;
    EXECUTE format('ALTER TABLE pushmesh.%I DETACH PARTITION pushmesh.%I', parent, slice);
    RETURN true;
END $$;
-- +goose StatementEnd

-- drop_slice drops what detach_slice took out.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.drop_slice(slice text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    IF slice !~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)_[0-9]+$'
        OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass(format('pushmesh.%I', slice))) THEN
        RAISE EXCEPTION '% is no slice that was detached', slice USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS pushmesh.%I', slice);
END $$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION pushmesh.make_slice(text, bigint, bigint), pushmesh.detach_slice(text), pushmesh.drop_slice(text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION pushmesh.make_slice(text, bigint, bigint), pushmesh.detach_slice(text), pushmesh.drop_slice(text);

-- Where commits take long, and there are always some under way, detach_slice never gets its lock on the table: the space of a slice must come back all
-- the same. empty_slice needs a lock on the slice alone, where nobody appends any more.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION pushmesh.empty_slice(slice text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
BEGIN
    IF slice !~ '^(log_[a-z]+|key_[a-z]+|batch|cursor_page|checkpoint)_[0-9]+$' THEN
        RAISE EXCEPTION '% is no slice that may be emptied', slice USING ERRCODE = 'invalid_parameter_value';
    ELSIF pg_relation_size(to_regclass(format('pushmesh.%I', slice))) > 0 THEN
        EXECUTE format('TRUNCATE pushmesh.%I', slice);
    END IF;
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION pushmesh.empty_slice(text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION pushmesh.empty_slice(text);

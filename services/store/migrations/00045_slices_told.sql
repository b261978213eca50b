-- A session that looks up a table's slices for the first time while another attaches one may not learn of it (Postgres 15 to 18, at least): it has the
-- list from before, and the word of the change came while it read it. It finds nothing in that slice, and can insert nothing, until the table is changed
-- again. tell_slices is such a change, of nothing.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION pushmesh.tell_slices(parent text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    any_column name;
BEGIN
    IF parent !~ '^(log_[a-z]+|key_[a-z]+|batch|scheduled|cursor_page|checkpoint)$' THEN
        RAISE EXCEPTION '% has no slices', parent USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT attname INTO any_column FROM pg_attribute WHERE attrelid = to_regclass(format('pushmesh.%I', parent)) AND attnum > 0 AND NOT attisdropped LIMIT 1;
    -- Of all changes of a table it needs the weakest lock, beside which rows are read and written.
    EXECUTE format('ALTER TABLE ONLY pushmesh.%I ALTER COLUMN %I SET STATISTICS -1', parent, any_column);
END $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION pushmesh.tell_slices(text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION pushmesh.tell_slices(text);

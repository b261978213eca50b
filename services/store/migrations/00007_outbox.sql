-- The outbox: messages that applications publish inside their own transactions. Rows are inserted, read once their transaction can be seen,
-- and go with the table that they lie in: three tables take turns, and the one whose turn comes is truncated first. Nothing is updated
-- and nothing deleted, so nothing bloats. Times are Unix microseconds.

-- +goose Up

-- In the order of publish calls, whichever transactions make them; it must not be cached by sessions.
CREATE SEQUENCE pushmesh.outbox_id;

-- +goose StatementBegin
DO $$
BEGIN
    FOR k IN 0 .. 2 LOOP
        EXECUTE format($sql$
            CREATE TABLE pushmesh.outbox_%1$s (
                id          bigint   PRIMARY KEY,
                xid         xid8     NOT NULL,
                message_id  uuid     NOT NULL,
                at          bigint   NOT NULL,
                ttl         bigint   NOT NULL,
                deliver_at  bigint   NOT NULL,
                priority    smallint NOT NULL,
                topic       text COLLATE "C" NOT NULL,
                dedupe_key  text COLLATE "C" NOT NULL,
                traceparent text     NOT NULL,
                headers     jsonb,
                payload     bytea    NOT NULL
            ) WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off)$sql$, k);
        EXECUTE format('ALTER TABLE pushmesh.outbox_%s ALTER COLUMN payload SET STORAGE EXTERNAL', k);
        EXECUTE format('CREATE INDEX outbox_%1$s_xid ON pushmesh.outbox_%1$s (xid)', k);
        -- How far the outbox was read: the greatest n of the three counts. What done sees is settled; open, where it is not null, is a
        -- batch under way, settled up to the id after_id.
        EXECUTE format($sql$
            CREATE TABLE pushmesh.outbox_tick_%s (
                n        bigint PRIMARY KEY,
                done     pg_snapshot NOT NULL,
                open     pg_snapshot,
                after_id bigint NOT NULL
            ) WITH (autovacuum_enabled = off)$sql$, k);
    END LOOP;
END
$$;
-- +goose StatementEnd

INSERT INTO pushmesh.outbox_tick_0 (n, done, after_id) VALUES (0, '1:1:', 0);

-- The table that new rows go to.
CREATE TABLE pushmesh.outbox_current (
    k  integer NOT NULL,
    id boolean PRIMARY KEY DEFAULT true CHECK (id)
);
INSERT INTO pushmesh.outbox_current (k) VALUES (0);

-- What was refused after its commit (a policy changed meanwhile); kept for 30 days.
CREATE TABLE pushmesh.outbox_refused (
    id         bigint PRIMARY KEY,
    message_id uuid NOT NULL,
    topic      text NOT NULL,
    code       text NOT NULL,
    error      text NOT NULL,
    payload    bytea NOT NULL,
    headers    jsonb,
    refused_at timestamptz NOT NULL DEFAULT now()
);

CREATE VIEW pushmesh.outbox_tick AS
          SELECT * FROM pushmesh.outbox_tick_0
UNION ALL SELECT * FROM pushmesh.outbox_tick_1
UNION ALL SELECT * FROM pushmesh.outbox_tick_2;

CREATE VIEW pushmesh.outbox AS
          SELECT 0 AS k, o.* FROM pushmesh.outbox_0 AS o
UNION ALL SELECT 1 AS k, o.* FROM pushmesh.outbox_1 AS o
UNION ALL SELECT 2 AS k, o.* FROM pushmesh.outbox_2 AS o;

-- max_payload of a topic's namespace: the longest prefix of whole levels wins.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.max_payload(topic text) RETURNS integer
LANGUAGE sql STABLE STRICT AS $$
    SELECT coalesce(nullif((
        SELECT (n.policy ->> 'maxPayload')::integer
        FROM (SELECT string_to_array(topic, '/') AS levels) AS t
        CROSS JOIN LATERAL generate_series(0, cardinality(t.levels)) AS i
        JOIN pushmesh.namespace AS n
            ON n.prefix = CASE WHEN i = 0 THEN 'default' ELSE array_to_string(t.levels[1:i], '/') END COLLATE "C"
        ORDER BY i DESC LIMIT 1), 0), 262144)
$$;
-- +goose StatementEnd

-- publish writes a message into the outbox, as a part of the caller's transaction: it is published once that has committed, and never if it is
-- rolled back. It answers the message's id (UUIDv7). Whoever may not reach the tables may still be granted this function.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.publish(
    topic       text,
    payload     bytea,
    headers     jsonb       DEFAULT NULL, -- an object of strings
    dedupe_key  text        DEFAULT NULL,
    priority    integer     DEFAULT 0,
    ttl         interval    DEFAULT NULL, -- from now, or from deliver_at
    deliver_at  timestamptz DEFAULT NULL,
    traceparent text        DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    now_us     bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    ttl_us     bigint := 0;
    due_us     bigint := 0;
    most       integer;
    k          integer;
    message_id uuid;
BEGIN
    IF topic IS NULL OR octet_length(topic) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'pushmesh: BAD_TOPIC: a topic has 1 to 255 bytes' USING ERRCODE = 'invalid_parameter_value';
    ELSIF starts_with(topic, '/') OR right(topic, 1) = '/' OR position('//' IN topic) > 0 THEN
        RAISE EXCEPTION 'pushmesh: BAD_TOPIC: empty level in %', quote_literal(topic) USING ERRCODE = 'invalid_parameter_value';
    ELSIF topic COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'pushmesh: BAD_TOPIC: control character' USING ERRCODE = 'invalid_parameter_value';
    ELSIF topic ~ '[+#]' THEN
        RAISE EXCEPTION 'pushmesh: BAD_TOPIC: a topic has no wildcard (+ or #): %', quote_literal(topic) USING ERRCODE = 'invalid_parameter_value';
    ELSIF starts_with(topic, '$') THEN
        RAISE EXCEPTION 'pushmesh: FORBIDDEN: topics that start with $ are the mesh''s own' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: payload is null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    most := pushmesh.max_payload(topic);
    IF octet_length(payload) > most THEN
        RAISE EXCEPTION 'pushmesh: PAYLOAD_TOO_LARGE: payload has % bytes, at most % in this namespace', octet_length(payload), most
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF headers IS NOT NULL THEN
        IF jsonb_typeof(headers) <> 'object' THEN
            RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: headers must be an object of strings' USING ERRCODE = 'invalid_parameter_value';
        ELSIF EXISTS (SELECT FROM jsonb_each(headers) AS h WHERE jsonb_typeof(h.value) <> 'string' OR h.key = '') THEN
            RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: headers: a name is not empty, and a value is a string' USING ERRCODE = 'invalid_parameter_value';
        ELSIF (SELECT count(*) > 64 OR sum(octet_length(h.key) + octet_length(h.value)) > 8192 FROM jsonb_each_text(headers) AS h) THEN
            RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: more than 64 headers, or 8192 bytes of them' USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END IF;
    IF octet_length(dedupe_key) > 256 OR dedupe_key = '' THEN
        RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: dedupe_key has 1 to 256 bytes' USING ERRCODE = 'invalid_parameter_value';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: priority is 0 to 9' USING ERRCODE = 'invalid_parameter_value';
    ELSIF octet_length(traceparent) > 55 THEN
        RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: traceparent has more than 55 bytes' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF ttl IS NOT NULL THEN
        IF ttl <= interval '0' OR ttl > interval '366 days' THEN
            RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: ttl must be above 0 and at most 366 days' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        ttl_us := greatest((extract(epoch FROM ttl) * 1000000)::bigint, 1);
    END IF;
    IF deliver_at IS NOT NULL THEN
        IF NOT isfinite(deliver_at) OR deliver_at > clock_timestamp() + interval '366 days' THEN
            RAISE EXCEPTION 'pushmesh: INVALID_ARGUMENT: deliver_at is more than 366 days ahead' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        due_us := greatest((extract(epoch FROM deliver_at) * 1000000)::bigint, 1);
    END IF;
    -- UUIDv7 (RFC 9562): 48 bits of milliseconds, the version, random bits, the variant.
    message_id := encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(now_us / 1000) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    SELECT c.k INTO STRICT k FROM pushmesh.outbox_current AS c;
    -- A table that this transaction does not write to must not be locked by it: it could not be truncated.
    CASE k
        WHEN 0 THEN
            INSERT INTO pushmesh.outbox_0 VALUES (nextval('pushmesh.outbox_id'), pg_current_xact_id(), message_id, now_us, ttl_us, due_us,
                priority, topic, coalesce(dedupe_key, ''), coalesce(traceparent, ''), headers, payload);
        WHEN 1 THEN
            INSERT INTO pushmesh.outbox_1 VALUES (nextval('pushmesh.outbox_id'), pg_current_xact_id(), message_id, now_us, ttl_us, due_us,
                priority, topic, coalesce(dedupe_key, ''), coalesce(traceparent, ''), headers, payload);
        ELSE
            INSERT INTO pushmesh.outbox_2 VALUES (nextval('pushmesh.outbox_id'), pg_current_xact_id(), message_id, now_us, ttl_us, due_us,
                priority, topic, coalesce(dedupe_key, ''), coalesce(traceparent, ''), headers, payload);
    END CASE;
    RETURN message_id;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION pushmesh.publish FROM PUBLIC;

-- +goose Down
DROP FUNCTION pushmesh.publish, pushmesh.max_payload;
DROP VIEW pushmesh.outbox, pushmesh.outbox_tick;
DROP TABLE pushmesh.outbox_refused, pushmesh.outbox_current;
DROP TABLE pushmesh.outbox_0, pushmesh.outbox_1, pushmesh.outbox_2, pushmesh.outbox_tick_0, pushmesh.outbox_tick_1, pushmesh.outbox_tick_2;
DROP SEQUENCE pushmesh.outbox_id;

-- Views and functions for people: every message as a row. The format is that of the Go package services/store/internal/run.

-- +goose Up

-- varint reads one from data at the byte pos (0-based) and says where the next thing begins.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.varint(data bytea, pos integer, OUT value bigint, OUT next integer)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    b     integer;
    shift integer := 0;
BEGIN
    value := 0;
    next := pos;
    LOOP
        b := get_byte(data, next);
        next := next + 1;
        value := value | ((b & 127)::bigint << shift);
        EXIT WHEN b < 128;
        shift := shift + 7;
        IF shift > 63 THEN
            RAISE EXCEPTION 'pushmesh: varint of more than 10 bytes';
        END IF;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- zigzag undoes the sign of a varint.
CREATE FUNCTION pushmesh.zigzag(v bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ((v >> 1) & 9223372036854775807) # -(v & 1) $$;

CREATE FUNCTION pushmesh.time(us bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT timestamptz 'epoch' + us * interval '1 microsecond' $$;

-- unpack makes a row of every record of a run.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.unpack(packed bytea, first_seq bigint)
RETURNS TABLE (seq bigint, message_id uuid, published_at timestamptz, expires_at timestamptz, traceparent text, producer uuid, producer_seq bigint, body bytea)
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    pos       integer := 1;
    n         bigint;
    base      bigint;
    producers bigint;
    ids       integer; -- where the producers begin
    flags     integer;
    us        bigint;
    v         bigint;
BEGIN
    IF get_byte(packed, 0) <> 1 THEN
        RAISE EXCEPTION 'pushmesh: run of version %', get_byte(packed, 0);
    END IF;
    SELECT * INTO n, pos FROM pushmesh.varint(packed, pos);
    SELECT * INTO base, pos FROM pushmesh.varint(packed, pos);
    SELECT * INTO producers, pos FROM pushmesh.varint(packed, pos);
    ids := pos;
    pos := pos + 16 * producers;
    FOR i IN 0 .. n - 1 LOOP
        seq := first_seq + i;
        flags := get_byte(packed, pos);
        SELECT * INTO v, pos FROM pushmesh.varint(packed, pos + 1);
        us := base + pushmesh.zigzag(v);
        published_at := pushmesh.time(us);
        message_id := encode(substr(packed, pos + 1, 16), 'hex')::uuid;
        SELECT * INTO v, pos FROM pushmesh.varint(packed, pos + 16);
        body := substr(packed, pos + 1, v::integer);
        pos := pos + v;
        expires_at := NULL;
        traceparent := NULL;
        producer := NULL;
        producer_seq := NULL;
        IF flags & 1 <> 0 THEN
            SELECT * INTO v, pos FROM pushmesh.varint(packed, pos);
            expires_at := pushmesh.time(us + pushmesh.zigzag(v));
        END IF;
        IF flags & 2 <> 0 THEN
            SELECT * INTO v, pos FROM pushmesh.varint(packed, pos);
            traceparent := convert_from(substr(packed, pos + 1, v::integer), 'UTF8');
            pos := pos + v;
        END IF;
        IF flags & 4 <> 0 THEN
            SELECT * INTO v, pos FROM pushmesh.varint(packed, pos);
            producer := encode(substr(packed, ids + 16 * v::integer + 1, 16), 'hex')::uuid;
            SELECT * INTO producer_seq, pos FROM pushmesh.varint(packed, pos);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- field finds a length-delimited field (text, bytes) of an encoded protobuf message; NULL: not there.
-- +goose StatementBegin
CREATE FUNCTION pushmesh.field(message bytea, number integer) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    pos   integer := 0;
    tag   bigint;
    v     bigint;
    found bytea;
BEGIN
    WHILE pos < length(message) LOOP
        SELECT * INTO tag, pos FROM pushmesh.varint(message, pos);
        CASE tag & 7
            WHEN 0 THEN
                SELECT * INTO v, pos FROM pushmesh.varint(message, pos);
            WHEN 1 THEN
                pos := pos + 8;
            WHEN 2 THEN
                SELECT * INTO v, pos FROM pushmesh.varint(message, pos);
                IF tag >> 3 = number THEN
                    found := substr(message, pos + 1, v::integer);
                END IF;
                pos := pos + v;
            WHEN 5 THEN
                pos := pos + 4;
            ELSE
                RAISE EXCEPTION 'pushmesh: wire type % in a message', tag & 7;
        END CASE;
    END LOOP;
    RETURN found;
END
$$;
-- +goose StatementEnd

-- Every message of the log; payload is the field of that name of the wire protocol's Message.
CREATE VIEW pushmesh.message AS
SELECT l.topic, l.epoch, m.seq, m.message_id, m.published_at, m.expires_at, pushmesh.field(m.body, 3) AS payload,
       m.traceparent, m.producer, m.producer_seq, l.shard, l.commit, pushmesh.time(l.at) AS committed_at, m.body
FROM pushmesh.log AS l
CROSS JOIN LATERAL pushmesh.unpack(l.packed, l.first_seq) AS m;

-- +goose Down
DROP VIEW pushmesh.message;
DROP FUNCTION pushmesh.field, pushmesh.unpack, pushmesh.time, pushmesh.zigzag, pushmesh.varint;

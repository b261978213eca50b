package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
	"github.com/pushmesh/pushmesh/services/store/internal/run"
)

// row of pushmesh.message.
type row struct {
	Seq         int64
	ID          [16]byte
	PublishedAt time.Time
	ExpiresAt   *time.Time
	Payload     []byte
	Traceparent *string
	Producer    *[16]byte
	ProducerSeq *int64
	Body        []byte
}

func body(t *testing.T, m *wirev1.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	need(t, err)
	return b
}

// Whatever the Go package packs, SQL reads the same.
func TestMessagesAreReadableInSQL(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	d := open(t, url)
	w, h, err := writerOf(t.Context(), d, "a", 3)
	need(t, err)
	at := uint64(time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC).UnixMicro())
	records := []run.Record{
		{ID: [16]byte{1, 2, 3}, PublishedAt: at, Body: body(t, &wirev1.Message{
			PublishedAt: 7, Payload: []byte("hello\x00\xff"), Headers: map[string]string{"a": "b"}, Priority: 3,
		})},
		{ID: [16]byte{0xff}, PublishedAt: at - 5_000_000, ExpiresAt: at + 60_000_000, Traceparent: "00-aa-bb-01", Body: nil},
		{PublishedAt: at + 300, Producer: [16]byte{9}, ProducerSeq: 1 << 40, Body: body(t, &wirev1.Message{Payload: make([]byte, 70_000)})},
		{PublishedAt: at + 301, ExpiresAt: 1, Traceparent: "t", Producer: [16]byte{8}, ProducerSeq: 1, Body: body(t, &wirev1.Message{Priority: 1})},
		{PublishedAt: at + 302, Producer: [16]byte{9}, ProducerSeq: 2},
	}
	b := batch(3, h.epoch[3], 1)
	b.Runs[0] = backend.Run{
		Shard: 3, Commit: 1, Topic: "room/1", Epoch: h.epoch[3], First: 41, N: len(records), At: b.At, Class: backend.Hour, Packed: run.Pack(nil, records),
	}
	need(t, w.Commit(t.Context(), b))

	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	rows, err := conn.Query(t.Context(), `
		SELECT seq, message_id, published_at, expires_at, payload, traceparent, producer, producer_seq, body
		FROM pushmesh.message WHERE topic = 'room/1' ORDER BY seq`)
	need(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	need(t, err)
	if diff := cmp.Diff(rowsOf(records, 41), got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func rowsOf(records []run.Record, first int64) (rows []row) {
	at := func(us uint64) time.Time { return time.UnixMicro(int64(us)).UTC() }
	for i, r := range records {
		w := row{Seq: first + int64(i), ID: r.ID, PublishedAt: at(r.PublishedAt), Body: r.Body}
		var m wirev1.Message
		if err := proto.Unmarshal(r.Body, &m); err == nil {
			w.Payload = m.GetPayload()
		}
		if r.ExpiresAt != 0 {
			w.ExpiresAt = new(at(r.ExpiresAt))
		}
		if r.Traceparent != "" {
			w.Traceparent = &r.Traceparent
		}
		if r.ProducerSeq != 0 {
			w.Producer, w.ProducerSeq = &r.Producer, new(int64(r.ProducerSeq))
		}
		rows = append(rows, w)
	}
	return rows
}

// What is no run is an error, not a wrong row.
func TestUnpackRefusesOtherVersions(t *testing.T) {
	url := pgtest.URL(t)
	open(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(context.Background())) }()
	for _, bad := range [][]byte{{2, 0, 0, 0}, {1}, {1, 5, 0, 0}, {1, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pushmesh.unpack($1, 1)`, bad).Scan(&n); err == nil {
			t.Errorf("%x gave %d rows", bad, n)
		}
	}
}

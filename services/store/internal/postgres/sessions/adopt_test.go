package sessions

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A position that its holder is writing, and that is committed after the session was taken from it,
// goes with the session: without a topic's first position nobody knows where to go on in it.
func TestAdoptionWaitsForWritesUnderWay(t *testing.T) {
	url := pgtest.URL(t)
	d := open(t, url)
	attached, err := d.AttachSession(t.Context(), &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e"}, backend.Quota{}, now())
	need(t, err)
	held := &meshv1.SessionWrite{User: "u", Name: "s", Generation: attached.GetGeneration(), Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 1}}}
	_, err = d.WriteCursors(t.Context(), []*meshv1.SessionWrite{held}, now())
	need(t, err)

	conn, err := pgx.Connect(t.Context(), url)
	need(t, err)
	defer func() { need(t, conn.Close(t.Context())) }()
	slow, err := conn.Begin(t.Context())
	need(t, err)
	p := newPage(1)
	held.Cursors = []*meshv1.SessionCursor{{Topic: "y", Floor: 5}}
	p.take(held)
	written, err := slow.Exec(t.Context(), insertHeld, p.args()...)
	need(t, err)
	if written.RowsAffected() != 1 {
		t.Fatal("the holder may not write")
	}
	a := backend.Adoption{From: backend.SessionKey{User: "u", Name: "s"}, To: backend.SessionKey{User: "ann", Name: "s"}}
	if done, err := d.AdoptSession(t.Context(), a, now()); code.Of(err) != wirev1.Code_CODE_UNAVAILABLE {
		t.Fatalf("adopted while a write was under way: %+v, %v", done, err)
	}
	need(t, slow.Commit(t.Context()))
	_, err = d.AdoptSession(t.Context(), a, now())
	need(t, err)
	cursors, err := d.cursorsOf(t.Context(), "ann", "s", 0)
	need(t, err)
	if len(cursors) != 2 || cursors[0].GetTopic() != "x" || cursors[1].GetTopic() != "y" || cursors[1].GetFloor() != 5 {
		t.Errorf("cursors: %v", cursors)
	}
}

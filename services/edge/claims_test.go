package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// claimWorld has seat/# for clients to claim, known to the edge.
func claimWorld(t *testing.T) (*world, *Edge) {
	w := newWorld(t)
	w.store.ClientClaims()
	e, _ := w.edge("e1")
	w.knowsSeats(e)
	return w, e
}

func (w *world) knowsSeats(e *Edge) {
	w.t.Helper()
	edgetest.WaitFor(w.t, "the namespace", func() error {
		if p := e.policies.Table().For("seat/1"); !p.Claims.Clients {
			return errors.New("the edge does not know it")
		}
		return nil
	})
}

func (c *client) claim(m *wirev1.Claim) { c.send(wirev1.FrameType_FRAME_TYPE_CLAIM, m) }

func (c *client) state(id uint32, want wirev1.ClaimState_State) *wirev1.ClaimState {
	c.t.Helper()
	m := &wirev1.ClaimState{}
	c.read(wirev1.FrameType_FRAME_TYPE_CLAIM_STATE, m)
	if m.GetId() != id || m.GetState() != want {
		c.t.Fatalf("got %v, want %v under %d", m, want, id)
	}
	return m
}

const (
	granted  = wirev1.ClaimState_STATE_GRANTED
	queued   = wirev1.ClaimState_STATE_QUEUED
	lost     = wirev1.ClaimState_STATE_LOST
	released = wirev1.ClaimState_STATE_RELEASED
	taken    = wirev1.ClaimState_STATE_HELD_BY_OTHER
)

func TestClaimsGoToTheStoreAndBack(t *testing.T) {
	w, e := claimWorld(t)
	a, b, seen := w.client(e, &wirev1.Hello{ClientId: "a"}), w.client(e, &wirev1.Hello{ClientId: "b"}), w.client(e, &wirev1.Hello{ClientId: "s"})
	a.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	token := a.state(1, granted).GetToken()
	b.claim(&wirev1.Claim{Id: 7, Resource: "seat/1"})
	b.state(7, queued)
	seen.claim(&wirev1.Claim{Id: 3, Resource: "seat/1", Op: wirev1.Claim_OP_WATCH})
	if st := seen.state(3, taken); st.GetHolder() != "client:a" || st.GetWaiting() != 1 {
		t.Fatal(st)
	}
	a.claim(&wirev1.Claim{Id: 2, Resource: "seat/1", Op: wirev1.Claim_OP_RELEASE, Token: token})
	a.state(2, released)
	if next := b.state(7, granted).GetToken(); next <= token {
		t.Fatalf("token %d after %d", next, token)
	}
	if st := seen.state(3, taken); st.GetHolder() != "client:b" {
		t.Fatal(st)
	}
	w.store.Lose("seat/1")
	if st := b.state(7, lost); st.GetCode() != wirev1.Code_CODE_EXPIRED {
		t.Fatal(st)
	}
	seen.state(3, wirev1.ClaimState_STATE_FREE)
	edgetest.WaitFor(t, "/metrics", func() error {
		resp, err := http.Get("http://" + e.HTTPAddr() + "/metrics")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		for _, want := range []string{
			`pushmesh_edge_claim_requests_total{code="OK",op="acquire"} 2`, `pushmesh_edge_claim_requests_total{code="OK",op="release"} 1`, "pushmesh_edge_claims_open 1\n",
			"pushmesh_edge_claim_pushes_total 4\n",
		} {
			if err == nil && !strings.Contains(string(body), want) {
				err = errors.New("no " + want)
			}
		}
		return err
	})
}

func TestClaimsEndWithTheirConnection(t *testing.T) {
	w, e := claimWorld(t)
	a, b := w.client(e, &wirev1.Hello{ClientId: "a"}), w.client(e, &wirev1.Hello{ClientId: "b"})
	a.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	a.state(1, granted)
	b.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	b.state(1, queued)
	if err := a.conn.Close(); err != nil {
		t.Fatal(err)
	}
	b.state(1, granted)
}

func TestClaimsWithoutAStore(t *testing.T) {
	w, e := claimWorld(t)
	a := w.client(e, &wirev1.Hello{ClientId: "a"})
	w.store.Down()
	a.claim(&wirev1.Claim{Id: 1, Resource: "seat/1"})
	m := &wirev1.Error{}
	a.read(wirev1.FrameType_FRAME_TYPE_ERROR, m)
	if m.GetCode() != wirev1.Code_CODE_UNAVAILABLE || m.GetRef() != 1 || m.GetRetryAfterMs() == 0 {
		t.Fatal(m)
	}
	w.store.Up()
	id := uint32(1)
	edgetest.WaitFor(t, "the store", func() error {
		id++
		a.claim(&wirev1.Claim{Id: id, Resource: "seat/1"})
		ft, body, err := wire.Read(a.conn, nil, wire.MaxBody)
		if err == nil && ft != wirev1.FrameType_FRAME_TYPE_CLAIM_STATE {
			err = fmt.Errorf("%v %q", ft, body)
		}
		return err
	})
}

package claims

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/test/harness"
	"github.com/pushmesh/pushmesh/test/procmesh"
	"github.com/pushmesh/pushmesh/test/wireclient"
)

// write is what docs/claims.md has applications do: it touches the row unless somebody with a later
// token did.
const write = `UPDATE report SET body = $1, fence = $2 WHERE id = 7 AND fence <= $2`

// A subscriber holds a report and stops for longer than its TTL, in which the store restarts; the
// next one in line writes. The first is told that it has lost the hold, and its token is refused:
// by Renew, by Release, and by the row that both write.
func TestAStaleTokenIsRefused(t *testing.T) {
	t.Parallel()
	own := pgtest.URL(t) // the application's
	pgtest.Exec(t, own, `CREATE TABLE report (id int PRIMARY KEY, body text, fence bigint NOT NULL)`)
	pgtest.Exec(t, own, `INSERT INTO report VALUES (7, '', 0)`)
	m := harness.Start(t, harness.Options{DB: pgtest.URL(t)})
	api := pushmeshv1.NewClaimServiceClient(m.Router(t))
	ns := pushmeshv1.NewNamespaceServiceClient(m.Router(t))
	if _, err := ns.Put(t.Context(), &pushmeshv1.NamespaceServicePutRequest{Namespace: &pushmeshv1.Namespace{
		Prefix: "report", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Ttl: durationpb.New(2 * time.Second), Clients: true}},
	}}); err != nil {
		t.Fatal(err)
	}
	const resource = "report/7"
	first, _ := wireclient.Connect(t, m.EdgeAddr(), &wirev1.Hello{ClientId: "first"})
	var old uint64
	procmesh.Await(t, "the first has it", func() bool {
		// #nosec G115 -- any that is new
		first.Send(wirev1.FrameType_FRAME_TYPE_CLAIM, &wirev1.Claim{Id: uint32(time.Now().UnixMicro()), Resource: resource, Op: wirev1.Claim_OP_ACQUIRE})
		st := told(t, first)
		old = st.GetToken()
		return st != nil && st.GetState() == wirev1.ClaimState_STATE_GRANTED
	})
	if pgtest.Exec(t, own, write, "by the first", int64(old)) != 1 { // #nosec G115 -- far from 2^63
		t.Fatal("the holder could not write")
	}

	m.RestartStore(t)
	var token uint64
	procmesh.Await(t, "the second has it", func() bool {
		res, err := api.Acquire(t.Context(), &pushmeshv1.AcquireRequest{Resource: resource, Owner: "second", Ttl: durationpb.New(time.Minute)})
		token = res.GetState().GetToken()
		return err == nil && res.GetState().GetState() == wirev1.ClaimState_STATE_GRANTED
	})
	if token <= old {
		t.Errorf("the second has token %d, the first had %d", token, old)
	}
	if pgtest.Exec(t, own, write, "by the second", int64(token)) != 1 { // #nosec G115 -- as above
		t.Fatal("the second could not write")
	}

	if n := pgtest.Exec(t, own, write, "by the first, late", int64(old)); n != 0 {
		// #nosec G115 -- as above
		t.Error("the row took a stale token")
	}
	for {
		st := told(t, first)
		if st != nil && st.GetState() == wirev1.ClaimState_STATE_LOST {
			break
		}
	}
	_, err := api.Renew(t.Context(), &pushmeshv1.RenewRequest{Resource: resource, Owner: "client:first", Token: old})
	if code.Of(err) != wirev1.Code_CODE_NOT_HELD {
		t.Errorf("renewed with a stale token: %v", err)
	}
	res, err := api.Release(t.Context(), &pushmeshv1.ReleaseRequest{Resource: resource, Owner: "client:first", Token: old})
	if st := res.GetState(); err != nil || st.GetCode() != wirev1.Code_CODE_NOT_HELD || st.GetState() != wirev1.ClaimState_STATE_HELD_BY_OTHER || st.GetHolder() != "second" {
		t.Errorf("released with a stale token: %v %v", res, err)
	}
}

// told is the next ClaimState that a connection gets; nil: it got an Error.
func told(t *testing.T, c *wireclient.Client) *wirev1.ClaimState {
	t.Helper()
	for {
		ft, body, err := c.Next(wireclient.Patience)
		if err != nil {
			t.Fatal(err)
		}
		switch ft {
		case wirev1.FrameType_FRAME_TYPE_CLAIM_STATE:
			st := &wirev1.ClaimState{}
			if err := proto.Unmarshal(body, st); err != nil {
				t.Fatal(err)
			}
			return st
		case wirev1.FrameType_FRAME_TYPE_ERROR:
			return nil
		default:
		}
	}
}

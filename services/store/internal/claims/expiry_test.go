package claims_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// Each of many holds ends when it should by the database's clock, though commits take their time
// and nodes go on asking.
func TestExpiryOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 20_000
		db := newDatabase()
		s := open(t, db, "a", true)
		s.ready()
		e := s.node("edge:1", 1)
		ends, random := map[string]uint64{}, rand.New(rand.NewPCG(1, 2))
		for i := 0; i < n; i += 1000 {
			ops := make([]*meshv1.ClaimOp, 1000)
			for k := range ops {
				ops[k] = told(fmt.Sprint("r/", i+k), "ann", 1)
				ops[k].TtlMs = 60_000 + random.Uint32N(60_000)
			}
			for _, c := range e.begin(ops...) {
				st := is(t, <-c, granted)
				ends[st.GetResource()] = st.GetExpiresAt()
			}
		}
		db.set(func(what string, _ backend.Owner) error {
			pass(10 * time.Millisecond)
			return nil
		}, nil)
		worst := int64(0)
		for range n {
			p := e.next()
			late := int64(db.now() - ends[p.GetState().GetResource()])
			if worst = max(worst, late); late < 0 || p.GetState().GetCode() != wirev1.Code_CODE_EXPIRED {
				t.Fatalf("%v: %d µs late", p, late)
			}
		}
		if t.Logf("%d µs late at most", worst); worst > 100_000 {
			t.Errorf("%d µs late", worst)
		}
	})
}

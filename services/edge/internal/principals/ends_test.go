package principals

import (
	"math"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/walk"
)

type knows struct{ who *identity.Principal }

func (k knows) Identify(exchange.Conn, Shown) (*identity.Principal, *code.Error, bool) {
	return k.who, nil, true
}
func (knows) Asks() bool            { return false }
func (knows) Nameless() *code.Error { return nil }

// A connection never ends before its token, but for a minute, however far away that is.
func TestEndsAtOfTimesFarAway(t *testing.T) {
	const loop = int64(time.Hour)
	wall := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, expires := range []time.Time{{}, wall.AddDate(1, 0, 0), wall.AddDate(292, 4, 0), wall.AddDate(400, 0, 0), wall.AddDate(700, 0, 0), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)} {
		var jobs walk.Jobs
		var cost walk.Cost
		table := New(Config{Door: knows{&identity.Principal{User: "ann", Expires: expires}}}, nil, &jobs, &cost,
			func() (int64, uint64) { return loop, uint64(wall.UnixMicro()) }, func(uint32) string { return "" })
		if _, wait, why := table.Hello(exchange.Conn{Gen: 1}, &wirev1.Hello{Token: "t", ClientId: "c"}, exchange.TLS); wait || why != nil {
			t.Fatal(wait, why)
		}
		least := int64(math.MaxInt64) // no bound
		if !expires.IsZero() {
			if left := expires.Sub(wall); left < math.MaxInt64-2*time.Hour {
				least = loop + int64(left-mostEarly)
			} else {
				least = math.MaxInt64 - int64(3*time.Hour)
			}
		}
		if at := table.EndsAt(0); at < least {
			t.Errorf("expires %v: ends at %d, want %d or later", expires, at, least)
		}
	}
}

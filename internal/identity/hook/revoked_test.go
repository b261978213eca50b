package hook

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
)

// A revocation has the time of the stores' database, by which the mesh's clock goes. What the
// backend was asked before it is void, however late it answers, and whatever this host's clock and
// the backend's say.
func TestAnAnswerIsAsOldAsItsQuestion(t *testing.T) {
	for what, iat := range map[string]func(mesh time.Time) string{
		"says nothing of it":       func(time.Time) string { return "" },
		"says that it is not made": func(mesh time.Time) string { return fmt.Sprintf(`, "iat": %d`, mesh.Unix()+100) },
	} {
		t.Run(what, func(t *testing.T) {
			var mesh atomic.Int64 // Unix s, years behind or ahead of this host's clock
			mesh.Store(2_000_000_000)
			revoked := time.Unix(mesh.Load()+1, 0)
			b := callertest.New(t, func(w http.ResponseWriter, r *http.Request) {
				now := time.Unix(mesh.Add(2), 0) // meanwhile the user is revoked
				callertest.Says(200, `{"sub": "ann", "expires_in": 60`+iat(now)+`}`)(w, r)
			})
			h := open(t, b, Config{Clock: func(time.Time) time.Time { return time.Unix(mesh.Load(), 0) }})
			who, err := h.Ask(t.Context(), &Question{Token: "x"})
			if err != nil {
				t.Fatal(err)
			}
			if who.Issued.After(revoked) {
				t.Errorf("it counts as of %v, and the user was revoked at %v", who.Issued, revoked)
			}
			if left := time.Until(who.Expires); left < 30*time.Second || left > time.Minute {
				t.Errorf("it ends in %s", left)
			}
		})
	}
}

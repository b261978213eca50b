package hook

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity/caller/callertest"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// More clients than the backend has answers for wait, and some are told to come back: a backend
// that answers each question in a quarter of its time is not one that fails.
func TestACrowdDoesNotOpenTheBreaker(t *testing.T) {
	const timeout = 800 * time.Millisecond
	b := callertest.New(t, func(w http.ResponseWriter, r *http.Request) {
		<-time.NewTimer(timeout / 4).C
		callertest.Says(200, ann)(w, r)
	})
	h := open(t, b, Config{Timeout: timeout, UnderWay: 1})
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[wirev1.Code]int{}
	end := time.Now().Add(5 * timeout)
	for range 50 {
		all.Go(func() {
			for time.Now().Before(end) {
				_, err := h.Ask(t.Context(), &Question{})
				mu.Lock()
				got[code.Of(err)]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if got[wirev1.Code_CODE_UNAVAILABLE] != 0 || h.Check() != nil {
		t.Errorf("the backend counts as one that does not answer: %v, %v", got, h.Check())
	}
	if n := got[wirev1.Code_CODE_OK]; n < 8 {
		t.Errorf("%v of the 20 were let in that the backend has time for", n)
	}
}

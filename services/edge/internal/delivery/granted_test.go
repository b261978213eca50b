package delivery

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// What one client was granted by an answer is nothing to the next one's request, whose user nobody
// has proven: a backend's, or that of a client without a token.
func TestAnAnswerIsOfNobodyElsesRequest(t *testing.T) {
	w, d, p := permitted(t, map[string]time.Duration{"publish open/1": 10 * time.Second})
	d.nameless = nil
	nobody := w.hello(&wirev1.Hello{ClientId: "phone", HeartbeatMs: 600_000})
	nobody.expect("Welcome")
	c := w.ann()
	c.send(wirev1.FrameType_FRAME_TYPE_PUBLISH, &wirev1.Publish{Id: 1, Topic: "open/1", Payload: []byte("a")})
	p.answer(nil, c)
	nobody.subscribe(&wirev1.Subscribe{Id: 1, Filter: "open/2"})
	nobody.expect("Subscribed 1 head=0")
	if s := w.h.Stats().Permissions; s.Leases != 0 {
		t.Errorf("%+v: nothing lasts by an answer", s)
	}
	w.pass(20 * time.Second)
	p.asks()
	nobody.take()
	nobody.expect()
}

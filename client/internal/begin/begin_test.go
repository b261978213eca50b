package begin

import (
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Where each start begins in a log of 20 messages, whether it names a position, and whether it
// makes no sense without a log.
func TestWhereASubscribeBegins(t *testing.T) {
	named := []*wirev1.Position{{Topic: "a", Epoch: 7, Seq: 4}}
	for name, x := range map[string]struct {
		r          *wirev1.Subscribe
		epoch, seq uint64
		asked, log bool
	}{
		"live":              {&wirev1.Subscribe{}, 0, 20, false, false},
		"live, ACKing":      {&wirev1.Subscribe{Ack: true}, 0, 20, false, true},
		"in a group":        {&wirev1.Subscribe{Ack: true, Group: "g"}, 0, 20, false, false},
		"earliest":          {&wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}, 0, 0, false, true},
		"a session":         {&wirev1.Subscribe{Start: wirev1.Start_START_SESSION}, 0, 0, false, true},
		"the last 5":        {&wirev1.Subscribe{Start: wirev1.Start_START_LAST_N, Seq: 5}, 0, 15, false, true},
		"the last 50":       {&wirev1.Subscribe{Start: wirev1.Start_START_LAST_N, Seq: 50}, 0, 0, false, true},
		"after a seq":       {&wirev1.Subscribe{Start: wirev1.Start_START_AFTER_SEQ, Epoch: 7, Seq: 9}, 7, 9, true, false},
		"a position":        {&wirev1.Subscribe{Positions: named}, 7, 4, true, false},
		"another's, or all": {&wirev1.Subscribe{Positions: []*wirev1.Position{{Topic: "b", Seq: 4}}, Start: wirev1.Start_START_EARLIEST}, 0, 0, true, true},
	} {
		epoch, seq := At(x.r, "a", 20)
		if epoch != x.epoch || seq != x.seq || Asked(x.r, false) != x.asked || WantsLog(x.r) != x.log {
			t.Errorf("%s: behind %d of %d, asked %v, wants a log %v", name, seq, epoch, Asked(x.r, false), WantsLog(x.r))
		}
		if resumes := x.r.GetStart() != wirev1.Start_START_SESSION; Asked(x.r, true) != resumes {
			t.Errorf("%s, resumed: asked %v", name, !resumes)
		}
	}
}

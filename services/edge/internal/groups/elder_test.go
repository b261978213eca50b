package groups

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// asFormer is a frame as an edge of an earlier version would have sent it, if it is of one.
func (w *world) asFormer(frame []byte) []byte {
	f := &meshv1.GroupFrame{}
	if err := proto.Unmarshal(frame, f); err != nil {
		return frame // a fuzz test's
	}
	w.mu.Lock()
	former := w.former[f.GetEdgeId()]
	w.mu.Unlock()
	if !former {
		return frame
	}
	for _, op := range f.GetOps() {
		if j := op.GetJoin(); j != nil {
			j.Since = 0
		}
		if j := op.GetJoined(); j != nil {
			j.Generation = 0
		}
	}
	frame, err := proto.Marshal(f)
	if err != nil {
		w.t.Error(err)
	}
	return frame
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

const (
	joined   = wirev1.Code_CODE_OK
	conflict = wirev1.Code_CODE_CONFLICT
)

func (w *world) wantTold(slot uint32, options ...[]wirev1.Code) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(options, func(want []wirev1.Code) bool { return slices.Equal(want, w.told[slot]) }) {
		w.t.Errorf("member %d was told %v, want one of %v", slot, w.told[slot], options)
	}
}

// away plays a group whose dispatcher, at a, dies while the store does not answer b, where a member
// is: a newcomer at c who wants another key is given the lease. b asks again so much later.
func (w *world) away(later time.Duration) {
	w.join("a", 1)
	pass(time.Second)
	w.join("b", 2)
	w.publish(20)
	w.await(time.Second)
	w.set(func() {
		w.cut = map[string]bool{"b": true}
		w.edges["a"].gone = true
	})
	pass(2 * defaultLease)
	w.joinKey("c", 3, "topic")
	pass(later)
	w.set(func() { w.cut = nil })
	pass(3 * time.Second)
}

// Members stay though a newcomer at another edge, who wants another group_key, was given the lease
// before their edge asked for it. It is told CONFLICT, before it is a member or after.
func TestANewcomerElsewhereEndsNobody(t *testing.T) {
	for _, later := range []time.Duration{0, 100 * time.Millisecond, 3 * time.Second} {
		for _, headless := range []int{0, 4} { // before the dispatcher is open
			for _, former := range []string{"", "a"} { // whose answer does not say since when
				t.Run(fmt.Sprint(later, headless, former), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, 1, 0, "a", "b", "c")
						defer w.stop()
						w.former = map[string]bool{former: true}
						time.AfterFunc(time.Second+2*defaultLease, func() { w.set(func() { w.headless = headless }) })
						w.away(later)
						w.wantTold(2, []wirev1.Code{joined})
						if later == 3*time.Second {
							w.wantTold(3, []wirev1.Code{joined, conflict})
						} else {
							w.wantTold(3, []wirev1.Code{joined, conflict}, []wirev1.Code{conflict})
						}
						w.publish(20)
						w.await(5 * time.Second)
						w.joinKey("c", 4, "topic")
						w.join("c", 5)
						pass(time.Second)
						w.wantTold(4, []wirev1.Code{conflict})
						w.wantTold(5, []wirev1.Code{joined})
					})
				})
			}
		}
	}
}

// Who waits for a dispatcher that is not open yet is not told that it has joined where others, who
// were there before, wait as well.
func TestANewcomerWaitsForThoseWhoWereThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b", "c")
		defer w.stop()
		time.AfterFunc(time.Second+2*defaultLease, func() { w.set(func() { w.headless = 6 }) })
		w.away(100 * time.Millisecond)
		w.wantTold(2, []wirev1.Code{joined})
		w.wantTold(3, []wirev1.Code{conflict})
	})
}

// An edge of an earlier version does not say since when its members are there: they count as
// newcomers. One side stays as well, and the group goes on.
func TestMembersOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b", "c")
		defer w.stop()
		w.former = map[string]bool{"b": true}
		w.away(3 * time.Second)
		w.wantTold(2, []wirev1.Code{joined, conflict})
		w.wantTold(3, []wirev1.Code{joined})
		w.publish(20)
		w.await(5 * time.Second)
	})
}

// Members who were cut off come back to a group that has gone on without them under another key,
// and under a second dispatcher since: who has been a member for longer stays.
func TestTheOldestMembersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, "a", "b", "c", "d")
		defer w.stop()
		w.join("a", 1)
		pass(time.Second)
		w.join("b", 2)
		w.publish(20)
		w.await(time.Second)
		w.set(func() {
			w.cut = map[string]bool{"b": true}
			w.edges["a"].gone = true
		})
		pass(2 * defaultLease)
		w.joinKey("c", 3, "topic")
		w.joinKey("d", 4, "topic")
		pass(time.Second)
		w.set(func() { w.edges["c"].gone = true })
		pass(2 * defaultLease)
		w.wantTold(4, []wirev1.Code{joined})
		w.set(func() { w.cut = nil })
		pass(3 * time.Second)
		w.wantTold(2, []wirev1.Code{joined})
		w.wantTold(4, []wirev1.Code{joined, conflict})
		w.publish(20)
		w.await(5 * time.Second)
	})
}

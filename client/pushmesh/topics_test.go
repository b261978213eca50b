package pushmesh

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/client/internal/position"
	"github.com/pushmesh/pushmesh/client/internal/topicfilter"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// subs makes subscriptions of a topic, by what was asked for; plain is what the edge took as such.
func subsOf(s *Subscriber, reqs ...*wirev1.Subscribe) *topicState {
	s.subs, s.topics = map[uint32]*Subscription{}, map[string]*topicState{}
	for i, r := range reqs {
		r.Id = uint32(i + 1)
		r.Filter = "room/a"
		s.subs[r.GetId()] = &Subscription{
			s: s, request: r, plain: r.GetStart() == wirev1.Start_START_LIVE && r.GetWhere() == "" && r.GetRankTopK() == 0, ready: make(chan struct{}), ended: make(chan struct{}),
		}
	}
	return s.topic("room/a")
}

// Whose a message is: of the subscriptions that it names, whatever they are; where it names none,
// of those that are plain. One that replays takes such a message only as its next one, or where no
// subscription is plain; one with a content filter or a ranking never does: what is for it names
// it.
func TestWhoseAMessageIs(t *testing.T) {
	plain, replay := &wirev1.Subscribe{}, &wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}
	where, ranked := &wirev1.Subscribe{Where: "true"}, &wirev1.Subscribe{RankTopK: 3}
	for name, x := range map[string]struct {
		of    []*wirev1.Subscribe
		high  uint64 // of each
		seq   uint64
		names []uint32
		want  []uint32
	}{
		"unnamed, to who is plain":              {[]*wirev1.Subscribe{plain, replay, where, ranked}, 3, 9, nil, []uint32{1}},
		"unnamed, and the next one of a replay": {[]*wirev1.Subscribe{plain, replay, where, ranked}, 3, 4, nil, []uint32{1, 2}},
		"unnamed, and had":                      {[]*wirev1.Subscribe{plain, replay}, 3, 3, nil, []uint32{1}},
		"unnamed, of no seq":                    {[]*wirev1.Subscribe{plain, replay}, 0, 0, nil, []uint32{1}},
		"unnamed, with nobody plain":            {[]*wirev1.Subscribe{replay, where, ranked}, 3, 9, nil, []uint32{1}},
		"named":                                 {[]*wirev1.Subscribe{plain, replay, where, ranked}, 3, 4, []uint32{3, 4, 99}, []uint32{3, 4}},
		"named to who is plain":                 {[]*wirev1.Subscribe{plain, replay}, 3, 4, []uint32{1}, []uint32{1}},
		"of subscriptions that are over":        {[]*wirev1.Subscribe{plain, replay}, 3, 4, []uint32{7}, nil},
	} {
		var reqs []*wirev1.Subscribe
		for _, r := range x.of {
			reqs = append(reqs, proto.CloneOf(r))
		}
		ts := subsOf(&Subscriber{}, reqs...)
		for _, c := range ts.cursors {
			c.High = x.high
		}
		var got []uint32
		for _, c := range ts.involved(nil, &Delivery{Topic: "room/a", Seq: x.seq, subs: x.names}, 0, nil) {
			got = append(got, c.sub.request.GetId())
		}
		slices.Sort(got)
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: of %v, want %v", name, got, x.want)
		}
	}
}

// Whose an ACK without a name would be: with plain subscriptions alone nobody needs to be named;
// beside others, one that is plain is, and of several one that ACKs.
func TestWhoAnACKNames(t *testing.T) {
	plain, acking, replay := &wirev1.Subscribe{}, &wirev1.Subscribe{Ack: true}, &wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST, Ack: true}
	for name, x := range map[string]struct {
		of    []*wirev1.Subscribe
		among []int // indexes of those that may be named; none: nobody is
	}{
		"plain ones alone":      {[]*wirev1.Subscribe{plain, acking}, nil},
		"beside another":        {[]*wirev1.Subscribe{replay, plain}, []int{1}},
		"the one that ACKs":     {[]*wirev1.Subscribe{replay, plain, acking}, []int{2}},
		"the one that ACKs, it": {[]*wirev1.Subscribe{acking, replay, plain}, []int{0}},
		"nobody plain":          {[]*wirev1.Subscribe{replay}, nil},
	} {
		for range 10 { // cursors have the order of a map
			var reqs []*wirev1.Subscribe
			for _, r := range x.of {
				reqs = append(reqs, proto.CloneOf(r))
			}
			got := subsOf(&Subscriber{}, reqs...).plainSub()
			if len(x.among) == 0 && got != 0 || len(x.among) > 0 && !slices.Contains(x.among, int(got)-1) {
				t.Fatalf("%s: subscription %d is named, want one of %v", name, got, x.among)
			}
		}
	}
}

// What will not come moves those on whom it concerns: the ones that are named, or, of none, the
// plain ones, or all where nobody is plain.
func TestWhomProgressConcerns(t *testing.T) {
	plain, replay := &wirev1.Subscribe{}, &wirev1.Subscribe{Start: wirev1.Start_START_EARLIEST}
	for name, x := range map[string]struct {
		of    []*wirev1.Subscribe
		names []uint32
		moved []uint32
	}{
		"unnamed":                {[]*wirev1.Subscribe{plain, replay}, nil, []uint32{1}},
		"unnamed, nobody plain":  {[]*wirev1.Subscribe{replay, replay}, nil, []uint32{1, 2}},
		"named":                  {[]*wirev1.Subscribe{plain, replay}, []uint32{2}, []uint32{2}},
		"named, and it is plain": {[]*wirev1.Subscribe{plain, replay}, []uint32{1}, []uint32{1}},
		"of one that is over":    {[]*wirev1.Subscribe{plain, replay}, []uint32{9}, nil},
	} {
		var gaps []Gap
		s := &Subscriber{cfg: SubscriberConfig{OnGap: func(g Gap) { gaps = append(gaps, g) }}}
		var reqs []*wirev1.Subscribe
		for _, r := range x.of {
			reqs = append(reqs, proto.CloneOf(r))
		}
		ts := subsOf(s, reqs...)
		s.progress(&wirev1.Progress{Topic: "room/a", From: 1, To: 5, Code: wirev1.Code_CODE_RETENTION, Subs: x.names}, 0)
		var moved []uint32
		for _, c := range ts.cursors {
			if c.High == 5 {
				moved = append(moved, c.sub.request.GetId())
			}
		}
		slices.Sort(moved)
		if !slices.Equal(moved, x.moved) || len(s.gaps) != len(x.moved) {
			t.Errorf("%s: moved %v, told %v, want %v", name, moved, s.gaps, x.moved)
		}
	}
}

// Cursors are bounded. Where one has to go, it is one of a topic without positions, if there is
// one.
func TestCursorsAreBounded(t *testing.T) {
	s := &Subscriber{subs: map[uint32]*Subscription{}, topics: map[string]*topicState{}}
	sub := &Subscription{s: s, request: &wirev1.Subscribe{Id: 1, Filter: "#"}, ready: make(chan struct{}), ended: make(chan struct{})}
	s.subs[1] = sub
	for _, keep := range []position.Cursor{{High: 1}, {Epoch: 7}} {
		for range 100 {
			s.topics = map[string]*topicState{}
			c := s.topic("kept").cursor(sub)
			c.High, c.Epoch = keep.High, keep.Epoch
			s.topic("passing")
			s.evict()
			if len(s.topics) != 1 || s.topics["kept"] == nil {
				t.Fatalf("a position was forgotten, and a topic without one was not")
			}
		}
		s.evict()
		if len(s.topics) != 0 {
			t.Fatal("nothing was forgotten")
		}
	}
	for i := range maxTopics + 100 {
		s.topic(fmt.Sprint("t/", i))
		if len(s.topics) > maxTopics {
			t.Fatalf("%d topics are kept", len(s.topics))
		}
	}
	if len(s.topics) != maxTopics || s.topics[fmt.Sprint("t/", maxTopics+99)] == nil {
		t.Errorf("%d topics are kept, the last one among them: %v", len(s.topics), s.topics[fmt.Sprint("t/", maxTopics+99)] != nil)
	}
}

// Each topic has a cursor for every subscription that matches, whichever came first, and none of
// one that is over; a topic of nobody is forgotten.
func TestCursorsFollowSubscriptions(t *testing.T) {
	filters := []string{"room/a", "room/+", "#", "other/#", "room/b"}
	topics := []string{"room/a", "room/b", "other/x", "nobodys"}
	rapid.Check(t, func(t *rapid.T) {
		s, err := NewSubscriber(SubscriberConfig{Addrs: []string{nobody}, MinBackoff: 1 << 50})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close(context.Background()) }()
		var live []*Subscription
		met := map[string]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				sub, err := s.Start(rapid.SampledFrom(filters).Draw(t, "filter"), fine)
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, sub)
			case 2:
				if len(live) > 0 {
					i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
					if err := live[i].Unsubscribe(t.Context()); err != nil {
						t.Fatal(err)
					}
					live = slices.Delete(live, i, i+1)
				}
			default:
				topic := rapid.SampledFrom(topics).Draw(t, "topic")
				met[topic] = true
				s.mu.Lock()
				s.topic(topic)
				s.mu.Unlock()
			}
			s.mu.Lock()
			if len(s.subs) != len(live) {
				t.Fatalf("%d subscriptions, want %d", len(s.subs), len(live))
			}
			for name, ts := range s.topics {
				want := 0
				for _, sub := range live {
					if topicfilter.Match(sub.Filter(), name) {
						want++
						if c := ts.cursor(sub); c == nil || c.sub != sub {
							t.Fatalf("%s has no cursor of %s", name, sub.Filter())
						}
					}
				}
				if len(ts.cursors) != want || want == 0 {
					t.Fatalf("%s has %d cursors, want %d", name, len(ts.cursors), want)
				}
			}
			s.mu.Unlock()
		}
	})
}

package sessions

import (
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// attached is a session that has filters and stands at 5 in the topics.
func attached(filters []string, topics ...string) *Session {
	s := &Session{User: "ann", Name: "inbox"}
	cursors := map[string]*meshv1.SessionCursor{}
	for _, name := range topics {
		cursors[name] = &meshv1.SessionCursor{Topic: name, Epoch: 7, Floor: 5, Acked: []uint64{7, 7}, Attempts: map[uint64]uint32{6: 2}}
	}
	s.Attach(&exchange.Attached{Generation: 3, Filters: filters, Cursors: cursors})
	return s
}

func TestWriteNamesTheHold(t *testing.T) {
	w := attached(nil).Write()
	if w.GetUser() != "ann" || w.GetName() != "inbox" || w.GetGeneration() != 3 {
		t.Fatalf("the write is %v", w)
	}
}

// A position that is taken up is its taker's alone, until it is put back.
func TestPositionIsTakenOnce(t *testing.T) {
	s := attached(nil, "room/1")
	cur, size := s.Take("room/1")
	if cur == nil || cur.Epoch != 7 || cur.Floor != 5 || !cur.Has(7) || cur.Attempts(6) != 2 || size != 3 {
		t.Fatalf("it stands at %+v, size %d", cur, size)
	}
	if again, _ := s.Take("room/1"); again != nil || s.Has("room/1") || s.Positions() != 0 {
		t.Fatal("it is taken up twice")
	}
	if s.Put("room/1", cur.Encode("room/1")); !s.Has("room/1") {
		t.Fatal("it is not there after it was put back")
	}
}

func TestFirstPositionsOfASessionThatIsNew(t *testing.T) {
	s := &Session{}
	s.Attach(&exchange.Attached{Generation: 1})
	if s.Put("room/1", &meshv1.SessionCursor{}); s.Positions() != 1 {
		t.Fatal("a session without stored positions takes none")
	}
}

// Changes gather: who changes something first says when all is saved.
func TestChangesGather(t *testing.T) {
	s := attached(nil)
	at, first := s.SaveSoon(100)
	if !first || at != 100+int64(SaveDelay) || s.SaveAt() != at {
		t.Fatalf("saved at %d, first %v", at, first)
	}
	if again, first := s.SaveSoon(200); first || again != at {
		t.Fatalf("a later change puts it off to %d, first %v", again, first)
	}
	if s.BeginSave(); s.SaveAt() != 0 {
		t.Fatal("nothing has changed, and it is to be saved")
	}
}

func TestFilterIsStoredOnce(t *testing.T) {
	s := attached([]string{"room/+"})
	w := s.Write()
	if s.AddFilter("room/+", w); len(w.GetAddFilters()) != 0 {
		t.Fatal("a filter is stored that the session has")
	}
	if s.AddFilter("talk/+", w); !slices.Equal(w.GetAddFilters(), []string{"talk/+"}) || !slices.Equal(s.Filters, []string{"room/+", "talk/+"}) {
		t.Fatalf("stored %v, the session has %v", w.GetAddFilters(), s.Filters)
	}
}

func TestStoredIsWaitedForOnce(t *testing.T) {
	s := attached(nil)
	if s.Stored(4) {
		t.Fatal("an answer that nobody waits for is taken")
	}
	s.Store(4)
	if !s.Stored(4) || s.Stored(4) {
		t.Fatal("an answer is taken never, or twice")
	}
}

func TestDeadLettersGoIntoOneWrite(t *testing.T) {
	s, w := attached(nil), &meshv1.SessionWrite{}
	m := &exchange.Message{Topic: "room/1", Epoch: 7, Seq: 9}
	s.GiveUp(m, 3, wirev1.Code_CODE_EXPIRED, 1234)
	if !s.HasLetters() {
		t.Fatal("there is no dead letter")
	}
	s.TakeLetters(w)
	if s.HasLetters() || len(w.GetDeadLetters()) != 1 {
		t.Fatalf("%d dead letters were handed in, more: %v", len(w.GetDeadLetters()), s.HasLetters())
	}
	d := w.GetDeadLetters()[0]
	if d.GetUser() != "ann" || d.GetSession() != "inbox" || d.GetSeq() != 9 || d.GetAttempts() != 3 || d.GetAt() != 1234 || d.GetReason() != wirev1.Code_CODE_EXPIRED {
		t.Fatalf("the dead letter is %v", d)
	}
}

// With a filter go the positions that no other filter wants; those of topics that a position of the
// connection has taken up are not touched.
func TestRemovalKeepsWhatOtherFiltersWant(t *testing.T) {
	s := attached([]string{"room/+", "room/2"}, "room/1", "room/2")
	var r Removal
	for _, name := range []string{"room/1", "room/2", "room/3"} {
		r.Add(name)
	}
	w := s.Write()
	if r.Begin(s, "room/+", w); !r.Begun() || !slices.Equal(w.GetRemoveFilters(), []string{"room/+"}) {
		t.Fatalf("removed filters %v", w.GetRemoveFilters())
	}
	steps := 1
	for ; !r.Step(s, w, []string{"soon/+"}, 1); steps++ {
	}
	if steps != 3 {
		t.Fatalf("3 topics took %d steps of one", steps)
	}
	if !slices.Equal(w.GetRemoveTopics(), []string{"room/1"}) || len(w.GetCursors()) != 1 || w.GetCursors()[0].GetTopic() != "room/2" || s.Positions() != 1 {
		t.Fatalf("removed %v, kept %v", w.GetRemoveTopics(), w.GetCursors())
	}
}

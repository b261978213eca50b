package backendtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// toAnn is an adoption of the session s of u.
var toAnn = backend.Adoption{From: backend.SessionKey{User: "u", Name: "s"}, To: backend.SessionKey{User: "ann", Name: "t"}}

func adopt(t *testing.T, b backend.Backend, a backend.Adoption, now uint64) backend.Adopted {
	t.Helper()
	done, err := b.AdoptSession(within(t), a, now)
	need(t, err)
	return done
}

// wantLetters wants dead letters of (user, session), by topic and in the order of their ids.
func wantLetters(t *testing.T, b backend.Backend, user, session string, want ...string) {
	t.Helper()
	all, err := b.ListDeadLetters(within(t), "", 0, 99)
	need(t, err)
	var got []string
	for _, l := range all {
		if l.GetUser() == user && l.GetSession() == session {
			got = append(got, l.GetTopic())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("letters of %s/%s: %v, want %v", user, session, got, want)
	}
}

// A session that is given to another owner has there all that it had, and nothing of a former
// session of that name; its holder can write no more, whatever folds lie before and after; asked
// again it was done already.
func testSessionAdopted(t *testing.T, db Database) {
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	for _, former := range []*meshv1.AttachSessionRequest{
		{User: "ann", Name: "t", EdgeId: "e", Origin: "192.0.2.1"}, {User: "ann", Name: "t", EdgeId: "e", TtlS: 1, Origin: "192.0.2.2"},
	} {
		g := attach(t, b, former, begin).Generation
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{
			User: "ann", Name: "t", Generation: g, Detach: former.TtlS > 0,
			Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 99}, {Topic: "former", Floor: 1}}, AddFilters: []string{"former"},
			DeadLetters: []*meshv1.DeadLetter{{User: "ann", Session: "t", Topic: "x", Epoch: 1, Seq: 1}},
		}), ok)
		if former.TtlS == 0 {
			remove(t, b, "ann", "t")
		}
	}
	now := after(time.Minute) // the second one's time is over
	g := attach(t, b, &meshv1.AttachSessionRequest{User: "u", Name: "s", EdgeId: "e1", ConnectionId: 4, TtlS: 3600, Origin: "192.0.2.3"}, now).Generation
	x := &meshv1.SessionCursor{Topic: "x", Epoch: 4, Floor: 10, Acked: []uint64{12, 14, 20, 20}, Attempts: map[uint64]uint32{11: 2, 15: 1}}
	y := &meshv1.SessionCursor{Topic: "y", Epoch: 4, Floor: 1}
	z := &meshv1.SessionCursor{Topic: "z", Epoch: 1, Floor: 7}
	wantCodes(t, write(t, b, now, &meshv1.SessionWrite{
		User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{x, z}, AddFilters: []string{"x", "y/#"},
		DeadLetters: []*meshv1.DeadLetter{{User: "u", Session: "s", Topic: "x", Epoch: 1, Seq: 1}, {User: "u", Session: "s", Topic: "y", Epoch: 1, Seq: 1}},
	}), ok)
	need(t, b.FoldCursors(within(t), backend.FoldAll))
	wantCodes(t, write(t, b, now, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{y}, RemoveTopics: []string{"z"}}), ok)

	done := adopt(t, b, toAnn, now)
	if done.Edge != "e1" || done.Generation <= g || done.Already {
		t.Errorf("adopted: %+v, held under %d", done, g)
	}
	late := &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{{Topic: "x", Floor: 50}}}
	wantCodes(t, write(t, b, now, late), notFound)
	late.User, late.Name = "ann", "t"
	wantCodes(t, write(t, b, now, late), taken)
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	for _, how := range []backend.Fold{backend.FoldPack, backend.FoldAll, backend.FoldPack} {
		wantCursors(t, b, "ann", "t", x, y)
		wantCursors(t, b, "u", "s")
		need(t, b.FoldCursors(within(t), how))
	}
	if again := adopt(t, b, toAnn, now); !again.Already {
		t.Errorf("adopted again: %+v", again)
	}
	wantLetters(t, b, "ann", "t", "x", "y")
	wantLetters(t, b, "u", "s", "x") // ann has it from the former session
	s, err := b.GetSession(within(t), "ann", "t", now)
	need(t, err)
	if s.GetEdge() != "" || s.GetConnectionId() != 0 || s.GetExpiresAt() != now+uint64(time.Hour.Microseconds()) || s.GetOrigin() != "192.0.2.3" || s.GetGeneration() < done.Generation {
		t.Errorf("the session is %v", s)
	}
	resumed := attach(t, b, &meshv1.AttachSessionRequest{User: "ann", Name: "t", EdgeId: "e2"}, now)
	if slices.Sort(resumed.Filters); !resumed.Resumed || resumed.Generation <= done.Generation || !slices.Equal(resumed.Filters, []string{"x", "y/#"}) {
		t.Errorf("resumed: %v", resumed)
	}
	wantCodes(t, write(t, b, now, &meshv1.SessionWrite{User: "ann", Name: "t", Generation: resumed.Generation, Cursors: []*meshv1.SessionCursor{{Topic: "y", Epoch: 4, Floor: 2}}}), ok)
	y.Floor = 2
	wantCursors(t, b, "ann", "t", x, y)
	// Counts went with it.
	wantSessions(t, b, 1)
	wantBound(t, newcomer(t, b, "bob", "1", "192.0.2.3", backend.Quota{Address: 1}, now), backend.BoundAddress)
	remove(t, b, "ann", "t")
	wantSessions(t, b, 0)
	wantBound(t, newcomer(t, b, "bob", "1", "192.0.2.3", backend.Quota{Address: 1}, now), "")
}

// An adoption that is refused, or only tried, changes nothing: holders hold, and write.
func testAdoptionsRefused(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	refused := func(a backend.Adoption, want error) {
		t.Helper()
		if done, err := b.AdoptSession(within(t), a, begin); !errors.Is(err, want) || done.Already {
			t.Errorf("%+v: %+v, %v, want %v", a, done, err, want)
		}
	}
	try := toAnn
	try.DryRun = true
	refused(toAnn, backend.ErrNotFound)
	refused(try, backend.ErrNotFound)
	mine := attach(t, b, from("e1", 1), begin).Generation
	x := &meshv1.SessionCursor{Topic: "x", Floor: 3}
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: mine, Cursors: []*meshv1.SessionCursor{x}}), ok)
	if done := adopt(t, b, try, begin); done.Edge != "e1" || done.Already {
		t.Errorf("tried: %+v", done)
	}
	anns := attach(t, b, &meshv1.AttachSessionRequest{User: "ann", Name: "t", EdgeId: "e2"}, begin).Generation
	refused(toAnn, backend.ErrExists)
	refused(try, backend.ErrExists)
	wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: mine}, &meshv1.SessionWrite{User: "ann", Name: "t", Generation: anns}), ok, ok)
	wantCursors(t, b, "u", "s", x)
	wantCursors(t, b, "ann", "t")
	remove(t, b, "ann", "t")
	adopt(t, b, toAnn, begin)
	if done := adopt(t, b, try, begin); !done.Already {
		t.Errorf("tried after it was done: %+v", done)
	}
	// Whoever comes under the old name begins anew, and that is another session.
	if again := attach(t, b, from("e1", 2), begin+1); again.Resumed {
		t.Errorf("the old name: %v", again)
	}
	refused(toAnn, backend.ErrExists)
	// Another owner's, and one whose time was over, was not adopted.
	refused(backend.Adoption{From: backend.SessionKey{User: "v", Name: "s"}, To: toAnn.To}, backend.ErrNotFound)
	remove(t, b, "u", "s")
	_, err := b.ExpireSessions(within(t), after(10*24*time.Hour), 10)
	need(t, err)
	attach(t, b, &meshv1.AttachSessionRequest{User: "ann", Name: "t", EdgeId: "e2"}, after(10*24*time.Hour))
	refused(toAnn, backend.ErrNotFound)
}

// A session that is attached again and again while it is adopted ends with one of the two, whole.
func testAdoptionsRace(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	for round := range uint64(10) {
		// generations are times, and it may take a while
		now := after(time.Duration(round) * time.Minute)
		x := &meshv1.SessionCursor{Topic: "x", Floor: round + 1}
		g := attach(t, b, from("e", 1), now).Generation
		wantCodes(t, write(t, b, now, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, Cursors: []*meshv1.SessionCursor{x}, AddFilters: []string{"x"}}), ok)
		type held struct {
			*meshv1.AttachSessionResponse
			code wirev1.Code
		}
		attached, anns := make(chan held, 1), make(chan *meshv1.AttachSessionResponse, 1)
		go func() {
			resp, err := b.AttachSession(within(t), from("f", 2), backend.Quota{}, now+1)
			if err != nil {
				t.Error(err)
			}
			codes, err := b.WriteCursors(within(t), []*meshv1.SessionWrite{{User: "u", Name: "s", Generation: resp.GetGeneration(), AddFilters: []string{"late"}}}, now+1)
			if err != nil {
				t.Error(err)
			}
			attached <- held{resp, append(codes, wirev1.Code_CODE_INTERNAL)[0]}
		}()
		go func() {
			resp, err := b.AttachSession(within(t), &meshv1.AttachSessionRequest{User: "ann", Name: "t", EdgeId: "g"}, backend.Quota{}, now+1)
			if err != nil {
				t.Error(err)
			}
			anns <- resp
		}()
		_, err := b.AdoptSession(within(t), toAnn, now+1)
		late, other := <-attached, <-anns
		switch {
		case errors.Is(err, backend.ErrExists): // ann's came first
			// It may have taken the session from its holder by then.
			if other.GetResumed() || !late.GetResumed() || late.code != ok && late.code != taken {
				t.Errorf("not adopted: ann %v, the old owner %v", other, late)
			}
			wantCursors(t, b, "u", "s", x)
		case err == nil:
			wantCursors(t, b, "ann", "t", x)
			if !other.GetResumed() {
				t.Errorf("adopted before ann attached, who has %v", other)
			}
			peek := attach(t, b, &meshv1.AttachSessionRequest{User: "ann", Name: "t", Peek: true}, now+1)
			// What the old owner was told is kept went with the session, or into its new one.
			if has := slices.Contains(peek.GetFilters(), "late"); has != (late.GetResumed() && late.code == ok) {
				t.Errorf("the late filter: %v, though %v, %s", has, late.AttachSessionResponse, late.code)
			}
			remove(t, b, "ann", "t")
		default:
			t.Fatal(err)
		}
		for _, k := range []backend.SessionKey{toAnn.From, toAnn.To} {
			if _, _, err := b.DeleteSession(within(t), k.User, k.Name); err != nil && !errors.Is(err, backend.ErrNotFound) {
				t.Fatal(err)
			}
		}
	}
}

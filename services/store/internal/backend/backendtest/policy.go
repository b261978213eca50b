package backendtest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func letter(topic string, seq uint64) *meshv1.DeadLetter {
	return &meshv1.DeadLetter{Topic: topic, Epoch: 4, Seq: seq, Body: []byte{0, byte(seq)}, Reason: wirev1.Code_CODE_ATTEMPTS_EXHAUSTED, Attempts: 16, User: "u", Session: "s", At: begin}
}

func testDeadLettersOnce(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	old := attach(t, b, from("e1", 1), begin).Generation
	g := attach(t, b, from("e2", 1), begin).Generation
	give := func(gen uint64, letters ...*meshv1.DeadLetter) *meshv1.SessionWrite {
		return &meshv1.SessionWrite{User: "u", Name: "s", Generation: gen, DeadLetters: letters}
	}
	wantCodes(t, write(t, b, begin, give(g, letter("x", 1), letter("x", 2)), give(old, letter("x", 3)), give(g, letter("x", 2), letter("x", 2), letter("y", 2))), ok, taken, ok)
	wantCodes(t, write(t, b, begin, give(g, letter("x", 1))), ok)
	other := letter("x", 1)
	other.Epoch = 5
	wantCodes(t, write(t, b, begin, give(g, other)), ok)
	all, err := b.ListDeadLetters(within(t), "", 0, 99)
	need(t, err)
	want := []*meshv1.DeadLetter{letter("x", 1), letter("x", 2), letter("y", 2), other}
	if diff := cmp.Diff(want, all, protocmp.Transform(), protocmp.IgnoreFields(&meshv1.DeadLetter{}, "id")); diff != "" {
		t.Error(diff)
	}
	remove(t, b, "u", "s")
	all, err = b.ListDeadLetters(within(t), "", 0, 99)
	need(t, err)
	if len(all) != 4 {
		t.Errorf("%d dead letters after the session was deleted, want 4", len(all))
	}
}

func testDeadLetterList(t *testing.T, db Database) {
	b := db(t)
	defer closeNow(t, b)
	g := attach(t, b, from("e1", 1), begin).Generation
	for _, topic := range []string{"room/1", "room/2/x", "room/1/y", "user/1"} {
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, DeadLetters: []*meshv1.DeadLetter{letter(topic, 1), letter(topic, 2)}}), ok)
	}
	list := func(filter string, after uint64, limit int) (topics []string, ids []uint64) {
		t.Helper()
		all, err := b.ListDeadLetters(within(t), filter, after, limit)
		need(t, err)
		for _, l := range all {
			topics, ids = append(topics, l.Topic), append(ids, l.Id)
		}
		if !slices.IsSorted(ids) {
			t.Errorf("ids not ascending: %v", ids)
		}
		return topics, ids
	}
	for filter, want := range map[string]int{"": 8, "room/1": 2, "room/#": 6, "+/1": 4, "room/1/#": 4, "none/#": 0} {
		if topics, _ := list(filter, 0, 99); len(topics) != want {
			t.Errorf("filter %q: %v, want %d", filter, topics, want)
		}
	}
	_, ids := list("room/#", 0, 4)
	_, rest := list("room/#", ids[3], 4)
	if len(ids) != 4 || len(rest) != 2 {
		t.Errorf("pages of %d and %d, want 4 and 2", len(ids), len(rest))
	}
	if got, _ := list("user/1", 0, 1); !slices.Equal(got, []string{"user/1"}) {
		t.Errorf("a filter whose match lies behind others, limit 1: %v", got)
	}
	some, err := b.FindDeadLetters(within(t), []uint64{1 << 40, rest[0], ids[0]})
	need(t, err)
	if len(some) != 2 || some[0].Id != ids[0] || some[1].Id != rest[0] || len(some[0].Body) == 0 {
		t.Errorf("found %v", some)
	}
	w := writer(t, b, owner("a"), 1)
	replay := oneRun(1, 1, 1, "room/1", 1, 1, begin, backend.Day)
	replay.Letters = []uint64{rest[0], 1 << 40}
	need(t, b.MakeSlices(within(t), begin))
	need(t, w.Commit(within(t), replay))
	if _, left := list("", 0, 99); len(left) != 7 || slices.Contains(left, rest[0]) {
		t.Errorf("left after a replay: %v", left)
	}
	n, err := b.DiscardDeadLetters(within(t), []uint64{ids[0], ids[1], 1 << 40})
	need(t, err)
	if n != 2 {
		t.Errorf("discarded %d, want 2", n)
	}
	if _, left := list("", 0, 99); len(left) != 5 || slices.Contains(left, ids[0]) {
		t.Errorf("left: %v", left)
	}
}

func namespace(prefix string, retention time.Duration) *pushmeshv1.Namespace {
	return &pushmeshv1.Namespace{Prefix: prefix, Policy: &pushmeshv1.Policy{Durable: true, Retention: durationpb.New(retention)}}
}

func testNamespaces(t *testing.T, db Database) {
	b := db(t)
	seed := []*pushmeshv1.Namespace{namespace("room", time.Hour), namespace("global", time.Hour)}
	need(t, b.SeedNamespaces(within(t), seed))
	v0, all, err := b.ListNamespaces(within(t), 0)
	need(t, err)
	if len(all) != 2 || all[0].Prefix != "global" || !all[0].Builtin || v0 == 0 {
		t.Fatalf("version %d: %v", v0, all)
	}
	stored, err := b.PutNamespace(within(t), namespace("room", 2*time.Hour))
	need(t, err)
	if !stored.Builtin || stored.Policy.Retention.AsDuration() != 2*time.Hour || stored.Version <= v0 {
		t.Errorf("stored: %v", stored)
	}
	chat, err := b.PutNamespace(within(t), namespace("chat", time.Minute))
	need(t, err)
	if chat.Builtin || chat.Version <= stored.Version {
		t.Errorf("stored: %v", chat)
	}
	need(t, b.SeedNamespaces(within(t), seed)) // another start: nothing changes
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	v1, all, err := b.ListNamespaces(within(t), v0)
	need(t, err)
	if v1 != chat.Version || len(all) != 3 || all[0].Prefix != "chat" {
		t.Fatalf("version %d (want %d): %v", v1, chat.Version, all)
	}
	if diff := cmp.Diff(stored, all[2], protocmp.Transform()); diff != "" {
		t.Errorf("room: %s", diff)
	}
	if v, none, err := b.ListNamespaces(within(t), v1); err != nil || v != v1 || len(none) != 0 {
		t.Errorf("unchanged: %d %v %v", v, none, err)
	}
	need(t, b.DeleteNamespace(within(t), "chat"))
	if v, all, err := b.ListNamespaces(within(t), v1); err != nil || v <= v1 || len(all) != 2 {
		t.Errorf("after the delete: %d %v %v", v, all, err)
	}
	if err := b.DeleteNamespace(within(t), "chat"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("second delete: %v", err)
	}
	if err := b.DeleteNamespace(within(t), "room"); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("delete of a builtin one: %v", err)
	}
}

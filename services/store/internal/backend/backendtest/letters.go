package backendtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// A letter is uncopied until a batch, or a mark, says that it is; a batch that is refused says
// nothing, and one that replays a letter removes it.
func testUncopiedLetters(t *testing.T, db Database) {
	b := db(t)
	need(t, b.MakeSlices(within(t), begin))
	g := attach(t, b, from("e1", 1), begin).Generation
	give := func(letters ...*meshv1.DeadLetter) {
		t.Helper()
		wantCodes(t, write(t, b, begin, &meshv1.SessionWrite{User: "u", Name: "s", Generation: g, DeadLetters: letters}), ok)
	}
	give(letter("x", 1), letter("x", 2), letter("y", 1), letter("y", 2), letter("z", 1))
	uncopied := func(after uint64, limit int) (ids []uint64) {
		t.Helper()
		page, err := b.UncopiedLetters(within(t), after, limit)
		need(t, err)
		for _, l := range page {
			ids = append(ids, l.GetId())
		}
		return ids
	}
	page, err := b.UncopiedLetters(within(t), 0, 1)
	need(t, err)
	if l := page[0]; len(page) != 1 || l.GetTopic() != "x" || l.GetSeq() != 1 || len(l.GetBody()) != 2 || l.GetAttempts() != 16 || l.GetUser() != "u" || l.GetAt() != begin {
		t.Errorf("the first letter: %v", page)
	}
	ids := uncopied(0, 99)
	if len(ids) != 5 || !slices.IsSorted(ids) || !slices.Equal(uncopied(ids[1], 2), ids[2:4]) {
		t.Fatalf("letters %v, a page behind the second %v", ids, uncopied(ids[1], 2))
	}
	w := writer(t, b, owner("a"), 1)
	copies := oneRun(1, 1, 1, "$dead/x", 1, 2, begin, backend.Day)
	copies.Copied = []uint64{ids[0], ids[2], 1 << 40}
	need(t, w.Commit(within(t), copies))
	need(t, b.MarkLettersCopied(within(t), []uint64{ids[0], ids[3], 1 << 40}))
	need(t, b.MarkLettersCopied(within(t), nil))
	refused := oneRun(2, 1, 1, "$dead/z", 1, 1, begin, backend.Day)
	refused.Copied = []uint64{ids[4]}
	if err := w.Commit(within(t), refused); !errors.Is(err, backend.ErrLost) {
		t.Errorf("commit into another's shard: %v, want ErrLost", err)
	}
	closeNow(t, b)
	b = db(t)
	defer closeNow(t, b)
	if left := uncopied(0, 99); !slices.Equal(left, []uint64{ids[1], ids[4]}) {
		t.Errorf("left: %v, want the second and fifth of %v", left, ids)
	}
	give(letter("x", 1), letter("x", 3)) // the first has been there, copied, and stays so
	replay := oneRun(1, 2, 1, "z", 1, 1, begin, backend.Day)
	replay.Letters = []uint64{ids[4]}
	need(t, writer(t, b, owner("b"), 1).Commit(within(t), replay))
	if left := uncopied(0, 99); len(left) != 2 || left[0] != ids[1] || left[1] <= ids[4] {
		t.Errorf("left at last: %v", left)
	}
	if all, err := b.ListDeadLetters(within(t), "", 0, 99); err != nil || len(all) != 5 {
		t.Errorf("copied letters are letters as before: %v, %v", all, err)
	}
}

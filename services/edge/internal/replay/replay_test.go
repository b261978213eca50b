package replay

import (
	"slices"
	"testing"
	"time"
)

// A range is read once, for all who wait for it, and what was used for it is given back.
func TestARangeIsReadOnceForAll(t *testing.T) {
	var r Reads[string]
	var room, talk *Topic[string]
	if !r.Wait(&room, 5, 1, "ann") || r.Wait(&room, 5, 1, "bob") || !r.Wait(&room, 9, 1, "cid") || !r.Wait(&talk, 5, 1, "dan") {
		t.Fatal("a range is read twice, or never")
	}
	if got := r.Arrived(&room, 5); !slices.Equal(got, []string{"ann", "bob"}) {
		t.Fatalf("%v waited for the range from 5 on", got)
	}
	if got := r.Arrived(&room, 5); got != nil {
		t.Fatalf("%v wait for a range that has come", got)
	}
	if got := r.Arrived(&room, 9); len(got) != 1 || room != nil || r.Topics() != 1 {
		t.Fatalf("%v waited for the range from 9 on; %d topics are waited for", got, r.Topics())
	}
	if got := r.Arrived(&room, 9); got != nil {
		t.Fatalf("%v wait for a topic that nobody waits for", got)
	}
	r.Forget(&talk)
	r.Forget(&talk)
	if r.Topics() != 0 || !r.Wait(&talk, 5, 1, "eve") {
		t.Fatal("those who were forgotten wait still")
	}
}

func TestThePaceIsByMillisecond(t *testing.T) {
	p, ms := Pace{Most: 10}, int64(time.Millisecond)
	for _, tt := range []struct {
		now       int64
		spend     int
		exhausted bool
	}{{5 * ms, 4, false}, {5*ms + 1, 5, false}, {5*ms + 2, 3, false}, {5*ms + 3, 0, true}, {6 * ms, 10, false}, {6 * ms, 0, true}, {9 * ms, 0, false}} {
		if got := p.Exhausted(tt.now); got != tt.exhausted {
			t.Fatalf("at %d it is exhausted: %v", tt.now, got)
		}
		p.Spend(tt.spend)
	}
	var none Pace
	if none.Spend(1 << 30); none.Exhausted(1) {
		t.Fatal("without a limit it is exhausted")
	}
}

func TestRoomInWindows(t *testing.T) {
	all := Room{true, true}
	for _, tt := range []struct {
		window, unacked uint32
		want            Room
	}{
		{1, 0, Room{true, true}}, {1, 1, Room{false, false}}, {8, 4, Room{true, true}}, {8, 5, Room{true, false}}, {8, 8, Room{}}, {8, 20, Room{}},
	} {
		if got := all.In(tt.window, tt.unacked); got != tt.want {
			t.Errorf("with %d of %d un-ACKed there is %+v", tt.unacked, tt.window, got)
		}
	}
	if got := (Room{}).In(8, 0); got != (Room{}) {
		t.Errorf("a window makes room where there is none: %+v", got)
	}
}

func TestTurns(t *testing.T) {
	for room, want := range map[int]int{0: 1, 7: 1, 64: 8, 128: 16, 10_000: Slice} {
		if got := Turn(room); got != want {
			t.Errorf("a turn of room for %d is %d, want %d", room, got, want)
		}
	}
}

// Who has very many positions has every second place of the line, and those who have take turns.
func TestAPlaceInLine(t *testing.T) {
	var l Line[string]
	for range 100 {
		l.Push(1, 100, "many")
	}
	for range 2 {
		l.Push(2, usual+1, "other")
	}
	for range 3 {
		l.Push(3, usual, "few")
	}
	var got []string
	for range 9 {
		v, _ := l.Pop(0)
		got = append(got, v)
	}
	if want := []string{"many", "few", "other", "few", "many", "few", "other", "many", "many"}; !slices.Equal(got, want) {
		t.Fatalf("they went on in the order %v", got)
	}
	for l.Len() > 0 {
		l.Pop(0)
	}
	if _, ok := l.Pop(0); ok {
		t.Fatal("somebody is left")
	}
}

// While as many ranges as may are read for those with very many positions, only others go on.
// Whichever way a range ends, it is counted off.
func TestThoseWithManyWaitForTheirReads(t *testing.T) {
	var l Line[string]
	l.Push(1, usual+1, "many")
	if l.Ready(mostRead) || !l.Ready(mostRead-1) {
		t.Fatal("the bound is another one")
	}
	l.Push(2, 1, "few")
	for _, want := range []string{"few", ""} {
		if v, ok := l.Pop(mostRead); v != want || ok != (want != "") {
			t.Fatalf("%q goes on, want %q", v, want)
		}
	}
	if v, _ := l.Pop(0); v != "many" {
		t.Fatalf("%q goes on", v)
	}
	var r Reads[string]
	var room, talk *Topic[string]
	for from := range uint64(3) {
		r.Wait(&room, from, usual+1, "many")
		r.Wait(&room, from, usual, "few")
		r.Wait(&talk, from, usual, "few")
		r.Wait(&talk, from, usual+1, "many")
	}
	if r.Many() != 3 {
		t.Fatalf("%d are read for those with many", r.Many())
	}
	r.Arrived(&room, 1)
	r.Arrived(&room, 1)
	if r.Forget(&room); r.Many() != 0 {
		t.Fatalf("%d are read for nobody", r.Many())
	}
}

package walk

import "testing"

// What takes part of a slice is taken once, and what is left of it is not forgotten.
func TestCostIsTakenOnce(t *testing.T) {
	var c Cost
	total := 0
	for n := range 3 * ItemsPerUnit {
		c.Add(n)
		total += n
	}
	if n := c.Take(); n != total/ItemsPerUnit || c.Take() != 0 {
		t.Fatalf("%d items are %d deliveries", total, n)
	}
	c.Add(ItemsPerUnit - total%ItemsPerUnit)
	if n := c.Take(); n != 1 {
		t.Fatalf("what was left and the rest of one delivery are %d", n)
	}
	c.Add(ItemsPerUnit - 1)
	if n := c.Take(); n != 0 {
		t.Fatalf("less than a delivery is %d", n)
	}
}

func TestCostEndsASlice(t *testing.T) {
	var c Cost
	n := 0
	for range c.Slice(10) {
		n++
	}
	if n != 10 {
		t.Fatalf("%d times, want 10", n)
	}
	n = 0
	for range c.Slice(10) {
		n++
		c.Add(4 * ItemsPerUnit)
	}
	if n != 2 {
		t.Fatalf("%d times at 5 units each, want 2", n)
	}
	for range c.Slice(10) {
		break
	}
}

// countdown is a job of so many steps.
type countdown struct {
	name  string
	steps int
	log   *[]string
}

func (j *countdown) Step() bool {
	*j.log = append(*j.log, j.name)
	j.steps--
	return j.steps == 0
}

func TestJobsTakeTurns(t *testing.T) {
	var q Jobs
	var log []string
	if q.Step() != 0 || q.Len() != 0 {
		t.Fatal("there is no job")
	}
	const many = 20 // more than there is room for at first
	for i := range many {
		q.Push(&countdown{string(rune('a' + i)), 1 + i%2, &log})
	}
	if q.Len() != many {
		t.Fatalf("%d jobs", q.Len())
	}
	for q.Step() > 0 {
	}
	got := ""
	for _, name := range log {
		got += name
	}
	if want := "abcdefghijklmnopqrstbdfhjlnprt"; got != want {
		t.Fatalf("steps were %s, want %s", got, want)
	}
}

func TestSlotsAreVisitedOnce(t *testing.T) {
	var c Cost
	var s Slots
	seen := map[uint32]int{}
	visit := func(slot uint32) bool {
		seen[slot]++
		return slot != 3 || seen[3] == 2 // that one is given once more
	}
	for steps := 1; !s.Step(&c, 4, 10, visit); steps++ {
		if len(seen) > 4*steps {
			t.Fatalf("%d slots after %d steps", len(seen), steps)
		}
	}
	for slot := range uint32(10) {
		want := 1
		if slot == 3 {
			want = 2
		}
		if seen[slot] != want {
			t.Errorf("slot %d was visited %d times, want %d", slot, seen[slot], want)
		}
	}
	if s.Step(&c, 4, 11, visit); seen[10] != 1 {
		t.Error("a slot that came later was not visited")
	}
}

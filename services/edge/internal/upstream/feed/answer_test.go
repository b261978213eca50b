package feed

import (
	"fmt"
	"testing"
	"time"
)

// News that a filter's topics are known is of those who had joined it then: what appeared while
// nobody wanted it is not owed to who came after.
func TestNewsOfAFilterThatWasLeftSaysNothing(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "r/+")
	old, since := b.Generation("r/+"), b.Basing()
	b.Remove(0, "r/+")
	b.log["r/1"] = &log{epoch: 1, head: 100, oldest: 1} // stored meanwhile
	b.Add(0, "r/+")
	again := b.Basing()
	b.Based("r/+", old)
	b.BasingDone(since)
	if b.IsBased("r/+") {
		t.Fatal("the old news counts")
	}
	b.log["r/1"].head++
	b.deliver("r/1", 1, 101)
	b.head("r/1")
	b.Based("r/+", b.Generation("r/+"))
	b.BasingDone(again)
	b.pass(20 * time.Millisecond)
	b.want(0, "")
	b.deliver("r/1", 1, 102)
	b.want(0, "r/1/1/102")
	if n := b.Stats().Holes.Load(); n != 0 {
		t.Errorf("the log was read %d times", n)
	}
}

// A topic's first message is lost while the topics of its filter are asked for, and the second
// waits: once the topics are known, it is not the first.
func TestAHoleAtTheStartOfATopicIsFound(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "r/+")
	since := b.Basing()
	b.log["r/1"] = &log{epoch: 1, head: 2, oldest: 1}
	b.deliver("r/1", 1, 2)
	b.pass(10 * time.Millisecond)
	b.Based("r/+", b.Generation("r/+"))
	b.BasingDone(since)
	b.pass(20 * time.Millisecond)
	b.want(0, "r/1/1/1 r/1/1/2")
}

// What appeared is remembered as long as a question may need it, however many follow on each other.
func TestWhatAppearedIsForgotten(t *testing.T) {
	b := newBench(t, 1, Config{})
	b.Add(0, "#")
	b.Based("#", b.Generation("#"))
	since := b.Basing()
	for i := range 100 {
		name, next := fmt.Sprint("r/", i), b.Basing()
		b.log[name] = &log{epoch: 1, head: 1, oldest: 1}
		b.deliver(name, 1, 1)
		var got []string
		for at, more := since, true; more; {
			at, more = b.Appeared(at, func(name string) bool { got = append(got, name); return false })
		}
		if len(got) == 0 || got[len(got)-1] != name || len(got) > 2 {
			t.Fatalf("%d appeared: %v", i, got)
		}
		b.BasingDone(since)
		since = next
	}
	if b.BasingDone(since); len(b.appeared) > 0 {
		t.Errorf("%d are kept", len(b.appeared))
	}
}

// A filter that is left again and again does not begin the look at all topics anew.
func TestASweepEnds(t *testing.T) {
	b := newBench(t, 1, Config{})
	for i := range 10 {
		b.Add(0, "r/+")
		b.Based("r/+", b.Generation("r/+"))
		b.deliver(fmt.Sprint("r/", i), 1, 1)
	}
	b.Remove(0, "r/+")
	for i := range 5 {
		b.Add(0, "s/+")
		b.Remove(0, "s/+")
		b.now = b.now.Add(sweepEvery)
		b.Advance(b.now)
		if b.Sweep(2); b.Len() != 10-2*(i+1) {
			t.Fatalf("%d topics are kept after %d looks", b.Len(), i+1)
		}
	}
	if b.Sweeping() {
		t.Error("it goes on")
	}
}

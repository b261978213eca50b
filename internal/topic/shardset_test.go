package topic

import "testing"

func TestShardSetIsFullWithEveryShard(t *testing.T) {
	half := ShardSetOf(func(n int) bool { return n%3 == 0 })
	other := ShardSetOf(func(n int) bool { return n%3 != 0 })
	if half.Full() || other.Full() {
		t.Fatal("a part is full")
	}
	half.Union(other[:5])
	half.Union(nil)
	if half.Full() {
		t.Fatal("full with a part of the rest")
	}
	half.Union(append(other, 1, 2, 3))
	if !half.Full() {
		t.Fatal("not full with everything")
	}
	half.Remove(Shards - 1)
	if half.Full() {
		t.Fatal("full without the last")
	}
}

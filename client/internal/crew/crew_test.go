package crew

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is put, taken and dropped, and by however many at once: of each topic all else comes
// once, in order, and one at a time, and what waits is counted.
func TestTopicsStayInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New[[2]int](rapid.IntRange(0, 2).Draw(t, "most"))
		var put, had [3]int
		taken := map[*Post[[2]int]]int{}
		waiting := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch {
			case rapid.Bool().Draw(t, "put"):
				more := c.More()
				topic := rapid.IntRange(0, 2).Draw(t, "topic")
				busy := put[topic] > had[topic] || slices.Contains(topicsOf(taken), topic)
				c.Put(fmt.Sprint(topic), [2]int{topic, put[topic]}, 10)
				put[topic]++
				waiting++
				if told := closed(more); told != (c.Most == 0 && !busy) {
					t.Fatalf("told of more: %v", told)
				}
			case rapid.Bool().Draw(t, "take"):
				p, it := c.Next()
				if p == nil {
					continue
				}
				if slices.Contains(topicsOf(taken), it[0]) || it[1] != had[it[0]] {
					t.Fatalf("%v, and of it %d was had; under way: %v", it, had[it[0]], taken)
				}
				had[it[0]]++
				taken[p] = it[0]
				waiting--
			case rapid.IntRange(0, 9).Draw(t, "drop") == 0:
				topic := rapid.IntRange(0, 2).Draw(t, "of")
				c.Drop(func(it [2]int) bool { return it[0] == topic })
				waiting -= put[topic] - had[topic]
				had[topic] = put[topic]
			default:
				for p := range taken {
					c.Handled(p)
					delete(taken, p)
					break
				}
			}
			if n, bytes := c.Waiting(); n != waiting || bytes != 10*waiting {
				t.Fatalf("%d wait, %d bytes, want %d", n, bytes, waiting)
			}
		}
		for p := range taken {
			c.Handled(p)
		}
		for {
			p, it := c.Next()
			if p == nil {
				break
			}
			if it[1] != had[it[0]] {
				t.Fatalf("%v, and of it %d was had", it, had[it[0]])
			}
			had[it[0]]++
			c.Handled(p)
		}
		if had != put || len(c.topics) > 0 {
			t.Fatalf("%v came of %v, %d topics are kept", had, put, len(c.topics))
		}
	})
}

func topicsOf(taken map[*Post[[2]int]]int) (topics []int) {
	for _, t := range taken {
		topics = append(topics, t)
	}
	return topics
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

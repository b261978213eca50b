package crew

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is put and taken, and by however many at once: of each topic all comes once, in order,
// and one at a time, and what waits is counted.
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
		if rapid.Bool().Draw(t, "clear") {
			n := 0
			c.Clear(func([2]int) { n++ })
			if p, _ := c.Next(); n != waiting || p != nil {
				t.Fatalf("%d are forgotten of %d", n, waiting)
			}
			return
		}
		for {
			p, it := c.Next()
			if p == nil {
				break
			}
			had[it[0]]++
			c.Handled(p)
		}
		if had != put {
			t.Fatalf("%v came of %v", had, put)
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

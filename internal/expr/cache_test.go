package expr

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestCacheCompilesOnce(t *testing.T) {
	c := NewCache(8, Limits{})
	var got [16]*Program
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i], _ = c.Compile(`priority > 3`, Filter) })
	}
	all.Wait()
	for _, p := range got {
		if p == nil || p != got[0] {
			t.Fatal("compiled more than once")
		}
	}
	score, err := c.Compile(`priority`, Score)
	if err != nil || score.kind != Score {
		t.Fatal(err)
	}
	if _, err := c.Compile(`priority`, Filter); err == nil {
		t.Fatal("a score is no filter")
	}
	_, first := c.Compile(`nope`, Filter)
	if _, again := c.Compile(`nope`, Filter); first == nil || again != first { //nolint:errorlint // the very same error, kept
		t.Fatal("a refusal is kept like a program")
	}
}

func TestCacheForgetsWhatWasUsedLongestAgo(t *testing.T) {
	c := NewCache(2, Limits{})
	compile := func(n int) *Program {
		p, err := c.Compile(fmt.Sprintf("priority > %d", n), Filter)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, two := compile(1), compile(2)
	if compile(1) != one {
		t.Fatal("forgotten")
	}
	compile(3)
	if compile(1) != one || c.Len() != 2 {
		t.Fatal("the one used last was forgotten")
	}
	if compile(2) == two {
		t.Fatal("more is kept than the bound")
	}
}

func TestReadyOnceCompiled(t *testing.T) {
	c := NewCache(2, Limits{})
	if c.Ready("priority", Score) {
		t.Error("ready before it is compiled")
	}
	_, _ = c.Compile("priority", Score)
	_, _ = c.Compile("nope", Score)
	if !c.Ready("priority", Score) || !c.Ready("nope", Score) || c.Ready("priority", Filter) {
		t.Error("what was compiled or refused is ready, as the kind that it was compiled as")
	}
	c.Ready("priority", Score)
	_, _ = c.Compile("id", Score)
	if !c.Ready("priority", Score) || c.Ready("nope", Score) {
		t.Error("what was asked for stays longer")
	}
	if !c.Ready(strings.Repeat("x", MaxText+1), Score) {
		t.Error("what is too long is refused at once")
	}
}

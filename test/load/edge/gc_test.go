package edge

import (
	"math"
	"testing"
)

func TestTraceOfTheCollectorIsRead(t *testing.T) {
	const said = `{"level":"warn","msg":"gc is not this"}
gc 7 @1.250s 0%: 0.031+0.66+0.009 ms clock, 0.062+0.12/0.58/0.1+0.018 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P
gc 8 @1.850s 0%: 0.1+0.66+0.2 ms clock, 1+1/1/1+1 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)
`
	c, err := readTrace(said)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.pauses) != 2 || math.Abs(c.pauses[0]-0.04) > 1e-9 || math.Abs(c.pauses[1]-0.3) > 1e-9 || math.Abs(c.cpu-5.88) > 1e-9 {
		t.Fatalf("got %+v", c)
	}
	if _, err := readTrace("gc 9 @1s 0%: 0.1+x ms clock, 1 ms cpu"); err == nil {
		t.Fatal("half a trace was read")
	}
}

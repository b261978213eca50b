package shardlog

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadersStepBackForAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{}
		r := p.reader()
		defer r.done()
		took := func(messages, bytes int) time.Duration {
			begun := time.Now()
			r.read(context.Background(), messages, bytes)
			return time.Since(begun)
		}
		if d := took(10*paceMessages, 10*paceBytes); d != 0 {
			t.Errorf("%s lost without appends", d)
		}
		p.taken(3)
		if d := took(1, 1); d != 0 {
			t.Errorf("%s lost after one message", d)
		}
		if d := took(paceMessages, 1); d < paceWait || d > paceWait+paceLook {
			t.Errorf("stepped back for %s beside appends that don't end", d)
		}
		go func() {
			<-time.After(paceWait / 2)
			p.answered(3)
		}()
		if d := took(1, paceBytes); d < paceWait/2 || d > paceWait/2+paceLook {
			t.Errorf("stepped back for %s, the appends ended after %s", d, paceWait/2)
		}
	})
}

// Beside appends several readers take half of the processors, and all of them again once there are
// none.
func TestReadersRestBesideAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers = 64 // more than half of the processors
		p := &pace{}
		all := make([]*reader, readers)
		for i := range all {
			all[i] = p.reader()
		}
		work := func() time.Duration {
			all[0].since = time.Now()
			<-time.After(time.Millisecond / 10)
			begun := time.Now()
			all[0].read(context.Background(), paceMessages, 1)
			return time.Since(begun)
		}
		if d := work(); d != 0 {
			t.Errorf("%s lost without appends", d)
		}
		p.taken(1)
		p.answered(1)
		want := restAfter(time.Millisecond/10, readers, runtime.GOMAXPROCS(0))
		if d := work(); d != want || d == 0 {
			t.Errorf("rested for %s, want %s", d, want)
		}
		for _, r := range all[1:] {
			r.done()
		}
		if d := work(); d != 0 {
			t.Errorf("a reader alone rested for %s", d)
		}
		<-time.After(paceLately)
		p.reader()
		if d := work(); d != 0 {
			t.Errorf("rested for %s long after the last append", d)
		}
	})
}

func TestRestLeavesHalfOfTheProcessors(t *testing.T) {
	for _, tt := range []struct{ readers, processors, want int }{
		{1, 1, 0}, {1, 2, 0}, {2, 2, 100}, {8, 2, 700}, {8, 16, 0}, {16, 16, 100}, {1000, 2, 10_000},
	} {
		if got := restAfter(100*time.Microsecond, tt.readers, tt.processors).Microseconds(); got != int64(tt.want) {
			t.Errorf("%d readers, %d processors: %d µs, want %d", tt.readers, tt.processors, got, tt.want)
		}
	}
}

package ranking

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// windows are those under way. One goroutine ends them.
type windows struct {
	post func(loop uint16, e exchange.Event)
	wake chan struct{} // 1: the first is another one

	mu    sync.Mutex
	due   dues
	ended bool
}

func newWindows(post func(uint16, exchange.Event)) *windows {
	return &windows{post: post, wake: make(chan struct{}, 1)}
}

// add begins a window. After the end it is over at once.
func (w *windows) add(g exchange.Gathering, now time.Time) {
	w.mu.Lock()
	ended := w.ended
	at := now.Add(g.Window)
	first := len(w.due) == 0 || at.Before(w.due[0].at)
	if !ended {
		heap.Push(&w.due, due{at, g.Loop, g.Serial})
	}
	w.mu.Unlock()
	switch {
	case ended:
		w.post(g.Loop, exchange.Gathered{Serial: g.Serial})
	case first:
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// run ends windows until ctx ends, and then all.
func (w *windows) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(w.over(time.Now()))
		select {
		case <-ctx.Done():
			w.end()
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// over tells of windows that are over, and says how long the next one lasts.
func (w *windows) over(now time.Time) time.Duration {
	for {
		w.mu.Lock()
		if len(w.due) == 0 {
			w.mu.Unlock()
			return time.Hour
		}
		if left := w.due[0].at.Sub(now); left > 0 {
			w.mu.Unlock()
			return left
		}
		d := heap.Pop(&w.due).(due)
		w.mu.Unlock()
		w.post(d.loop, exchange.Gathered{Serial: d.serial})
	}
}

func (w *windows) end() {
	w.mu.Lock()
	left := w.due
	w.due, w.ended = nil, true
	w.mu.Unlock()
	for _, d := range left {
		w.post(d.loop, exchange.Gathered{Serial: d.serial})
	}
}

// due is the end of a window.
type due struct {
	at     time.Time
	loop   uint16
	serial uint64
}

// dues is a heap.Interface, the first in front.
type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(x any)        { *d = append(*d, x.(due)) }

func (d *dues) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}

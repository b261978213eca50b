package appender

import (
	"testing"
	"time"
)

// play is a stream whose store answers capacity items a second, in groups, each after delay at
// least. It is a story in steps of a millisecond.
type play struct {
	s        *stream
	now      time.Time
	capacity float64
	delay    time.Duration
	queue    []time.Time // when items that wait were taken, oldest first
	ready    float64
	owed     float64 // of what arrives
	next     uint32  // priority

	taken, refused [10]int
	done           int
	slowest        time.Duration
}

func newPlay(capacity float64, delay time.Duration) *play {
	s := newStream(&Appender{cfg: Config{MaxWait: defaultMaxWait, MaxItems: defaultMaxItems}}, "a", nil)
	return &play{s: s, now: time.Unix(1_000_000, 0), capacity: capacity, delay: delay}
}

// offer lets so many items a second arrive, of all priorities alike, for a time. What was counted
// before is forgotten.
func (p *play) offer(perSecond float64, d time.Duration) {
	p.taken, p.refused, p.done, p.slowest = [10]int{}, [10]int{}, 0, 0
	for end := p.now.Add(d); p.now.Before(end); {
		p.now = p.now.Add(time.Millisecond)
		for p.owed += perSecond / 1000; p.owed >= 1; p.owed-- {
			p.next = (p.next + 1) % 10
			if p.s.load.gate.Admits(p.s.load.pressure(), p.next) {
				p.taken[p.next]++
				p.s.load.waiting.Add(1)
				p.queue = append(p.queue, p.now)
			} else {
				p.refused[p.next]++
			}
		}
		p.answer()
		if p.now.UnixMilli()%tickEvery.Milliseconds() == 0 {
			p.s.measure(p.now)
		}
	}
}

// answer answers, every 4 ms, what the store had time for.
func (p *play) answer() {
	p.ready = min(p.ready+p.capacity/1000, p.capacity/100)
	if p.now.UnixMilli()%4 != 0 {
		return
	}
	n := 0
	for n < len(p.queue) && p.ready >= 1 && p.now.Sub(p.queue[n]) >= p.delay {
		p.slowest = max(p.slowest, p.now.Sub(p.queue[n]))
		p.ready--
		n++
	}
	if n == 0 {
		return
	}
	p.s.heard = p.now
	p.s.meter.took(p.now, n, p.queue[0])
	p.s.load.waiting.Add(-int64(n))
	p.queue = p.queue[n:]
	p.done += n
}

func (p *play) sum(of [10]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

func TestOverloadKeepsTheStoreBusyAndWaitsShort(t *testing.T) {
	const capacity = 30_000
	p := newPlay(capacity, 3*time.Millisecond)
	p.offer(0.8*capacity, 2*time.Second)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused below the capacity", n)
	}

	p.offer(3*capacity, time.Second) // it learns
	if p.slowest > 4*defaultMaxWait {
		t.Errorf("waited %v at first", p.slowest)
	}
	p.offer(3*capacity, 4*time.Second)
	if p.done < 0.97*capacity*4 {
		t.Errorf("%d answered of %d that could be", p.done, capacity*4)
	}
	if p.slowest > defaultMaxWait {
		t.Errorf("waited %v", p.slowest)
	}
	for low := range 6 {
		if n := p.taken[low]; n > p.refused[low]/10 {
			t.Errorf("priority %d: %d taken, %d refused", low, n, p.refused[low])
		}
	}
	for high := 8; high < 10; high++ {
		if n := p.refused[high]; n > p.taken[high]/100 {
			t.Errorf("priority %d: %d taken, %d refused", high, p.taken[high], n)
		}
	}

	p.offer(0.8*capacity, time.Second)
	p.offer(0.8*capacity, 2*time.Second)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused after it was over", n)
	}
}

func TestAStoreThatGetsSlowerIsGivenLess(t *testing.T) {
	p := newPlay(60_000, 2*time.Millisecond)
	p.offer(50_000, 2*time.Second)
	p.capacity = 15_000
	p.offer(50_000, 2*time.Second)
	p.offer(50_000, 2*time.Second)
	if p.done < 0.95*15_000*2 || p.slowest > 2*defaultMaxWait {
		t.Errorf("%d answered, waited %v", p.done, p.slowest)
	}
	p.capacity = 60_000
	p.offer(50_000, 2*time.Second)
	p.offer(50_000, 2*time.Second)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused when it was quick again", n)
	}
}

// A commit that takes longer than things should wait does not choke the store: it gets what it
// needs to be busy.
func TestASlowDiskIsNotOverload(t *testing.T) {
	p := newPlay(40_000, 80*time.Millisecond)
	p.offer(5000, 2*time.Second)
	p.offer(5000, 2*time.Second)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused", n)
	}
}

func TestASilentStoreIsSpared(t *testing.T) {
	p := newPlay(40_000, time.Millisecond)
	p.offer(10_000, time.Second)
	p.s.sent[1] = &Item{} // what is unanswered
	p.s.heard = p.now
	p.capacity, p.ready = 0, 0
	p.offer(10_000, 400*time.Millisecond)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused within 400 ms: commits may take that now and then", n)
	}
	p.offer(10_000, 2*time.Second)
	if p.refused[0] < 1500 || p.refused[9] < 500 || p.refused[9] >= p.refused[0] {
		t.Errorf("refused: %v", p.refused)
	}
}

func TestFewItemsMayWaitForLong(t *testing.T) {
	p := newPlay(100, time.Second)
	p.offer(200, 2*time.Second)
	if n := p.sum(p.refused); n != 0 {
		t.Errorf("%d refused", n)
	}
}

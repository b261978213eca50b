package replay

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept from 1 µs to 10 minutes with two digits.
const (
	latencyLowest  = 1
	latencyHighest = int64(10 * time.Minute / time.Microsecond)
	latencyDigits  = 2
	meterShards    = 16
)

// meter counts what the subscribers and the publisher do. It is safe for concurrent use.
type meter struct {
	connected  atomic.Int64
	subscribed atomic.Int64 // first subscriptions of the wave
	published  atomic.Uint64
	delivered  atomic.Uint64
	duplicate  atomic.Uint64
	acked      atomic.Uint64
	reconnects atomic.Uint64
	lastError  atomic.Pointer[string]
	moved      chan struct{} // a token: delivered or subscribed changed
	shards     [meterShards]latencies
}

type latencies struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram
	_    [64]byte // keeps neighbours off the same cache line
}

func newMeter() *meter {
	m := &meter{moved: make(chan struct{}, 1)}
	for i := range m.shards {
		m.shards[i].hist = hdrhistogram.New(latencyLowest, latencyHighest, latencyDigits)
	}
	return m
}

// deliveries counts first deliveries of one read, published at the given Unix nanoseconds.
func (m *meter) deliveries(shard int, now int64, sent []int64) {
	if len(sent) == 0 {
		return
	}
	l := &m.shards[shard%meterShards]
	l.mu.Lock()
	for _, at := range sent {
		us := min(max((now-at)/1000, latencyLowest), latencyHighest)
		_ = l.hist.RecordValue(us) // within bounds by the line above
	}
	l.mu.Unlock()
	m.delivered.Add(uint64(len(sent)))
	m.move()
}

func (m *meter) move() {
	select {
	case m.moved <- struct{}{}:
	default:
	}
}

func (m *meter) failed(err error) {
	s := err.Error()
	m.lastError.Store(&s)
}

// progress changes whenever anything moves.
func (m *meter) progress() [3]uint64 {
	return [3]uint64{uint64(m.subscribed.Load()), m.published.Load(), m.delivered.Load()}
}

func (m *meter) latency() *hdrhistogram.Histogram {
	all := hdrhistogram.New(latencyLowest, latencyHighest, latencyDigits)
	for i := range m.shards {
		l := &m.shards[i]
		l.mu.Lock()
		all.Merge(l.hist)
		l.mu.Unlock()
	}
	return all
}

// line says where things stand.
func (m *meter) line(elapsed time.Duration, wave, waves int, rate uint64) string {
	h := m.latency()
	return fmt.Sprintf("%6.1fs  wave %d/%d  connected %d  published %d  delivered %d (%d/s)  acked %d  p50 %s  p99 %s  reconnects %d",
		elapsed.Seconds(), wave, waves, m.connected.Load(), m.published.Load(), m.delivered.Load(), rate,
		m.acked.Load(), micros(h.ValueAtQuantile(50)), micros(h.ValueAtQuantile(99)), m.reconnects.Load())
}

func micros(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.String()
}

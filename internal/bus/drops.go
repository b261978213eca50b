package bus

import (
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// drops counts what NATS had for this process and did not get through, by code. It is a
// prometheus.Collector, safe for concurrent use.
type drops struct {
	mu   sync.Mutex
	subs map[*nats.Subscription]struct{}
	left uint64 // dropped by subscriptions that are gone
	// gaps: UNAVAILABLE, the connection was lost and what came meanwhile is unknown; OVERLOADED,
	// more came than was taken.
	unavailable, overloaded uint64
}

var (
	natsDropped = prometheus.NewDesc("pushmesh_nats_dropped_total", "Messages from NATS that were dropped before they were read, by code.", []string{"code"}, nil)
	natsGaps    = prometheus.NewDesc("pushmesh_nats_gaps_total", "Times that messages from NATS may have been missed, by code: UNAVAILABLE, the connection was lost; OVERLOADED, more arrived than the process read.", []string{"code"}, nil)
)

// Describe implements prometheus.Collector.
func (d *drops) Describe(ch chan<- *prometheus.Desc) { ch <- natsDropped; ch <- natsGaps }

// Collect implements prometheus.Collector.
func (d *drops) Collect(ch chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, n uint64, why wirev1.Code) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), code.Name(why))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	dropped := d.left
	for sub := range d.subs {
		dropped += of(sub)
	}
	count(natsDropped, dropped, wirev1.Code_CODE_OVERLOADED)
	count(natsGaps, d.unavailable, wirev1.Code_CODE_UNAVAILABLE)
	count(natsGaps, d.overloaded, wirev1.Code_CODE_OVERLOADED)
}

// of is what a subscription dropped; one that was closed does not say.
func of(sub *nats.Subscription) uint64 {
	n, err := sub.Dropped()
	if err != nil {
		return 0
	}
	return uint64(n)
}

// gap counts a gap; OK, the first connect, is none.
func (d *drops) gap(why wirev1.Code) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch why {
	case wirev1.Code_CODE_UNAVAILABLE:
		d.unavailable++
	case wirev1.Code_CODE_OVERLOADED:
		d.overloaded++
	}
}

func (d *drops) watch(sub *nats.Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subs == nil {
		d.subs = map[*nats.Subscription]struct{}{}
	}
	d.subs[sub] = struct{}{}
}

// leave keeps what sub dropped; it is about to be closed.
func (d *drops) leave(sub *nats.Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.subs[sub]; there {
		delete(d.subs, sub)
		d.left += of(sub)
	}
}

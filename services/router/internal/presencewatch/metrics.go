package presencewatch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

type metrics struct {
	asks, badFrames prometheus.Counter
	ends            *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, w *Watches) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "pushmesh_router_presence_" + name, Help: help})
	}
	gauge := func(name, help string, read func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pushmesh_router_presence_" + name, Help: help}, func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return float64(read())
		})
	}
	m := &metrics{
		asks: counter("asks_total", "Times that an edge was asked for all members of a filter."),
		badFrames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pushmesh_router_presence_bad_frames_total", Help: "Presence frames from edges that could not be decoded.", ConstLabels: prometheus.Labels{"code": code.Name(wirev1.Code_CODE_BAD_FRAME)},
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_router_presence_ended_total", Help: "Presence watches that this router refused or ended, by code.",
		}, []string{"code"}),
	}
	if reg != nil {
		reg.MustRegister(m.asks, m.badFrames, m.ends,
			gauge("filters", "Filters whose members are watched, topics that clients watch among them.", func() int { return len(w.byTopics) }),
			gauge("watches", "Presence watches of backends.", func() int { return w.streams }),
			gauge("members", "Members of the watched filters that this router keeps in memory.", func() int {
				n := 0
				for _, x := range w.byTopics {
					n += x.follower.MemberCount()
				}
				return n
			}))
	}
	return m
}

func (m *metrics) countEnd(why wirev1.Code) { m.ends.WithLabelValues(code.Name(why)).Inc() }

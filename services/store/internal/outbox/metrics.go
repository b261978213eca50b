package outbox

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

type metrics struct {
	messages                              *prometheus.CounterVec
	reading, pending, bytes, age, blocked prometheus.Gauge
	parked, parkedBytes, full             prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: "pushmesh_store_outbox_" + name, Help: help})
	}
	return &metrics{
		messages: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "pushmesh_store_outbox_messages_total", Help: "Messages that transactions published with pushmesh.publish, by the code that a router answered with.",
		}, []string{"code"}),
		reading: gauge("reading", "1 on the store that reads the transactional outbox, 0 on the others."),
		pending: gauge("pending_messages", "Messages of committed transactions that are not published yet."),
		bytes:   gauge("bytes", "Size of the outbox's tables and indexes."),
		age:     gauge("rotation_age_seconds", "Time since the last rotation of the outbox's tables."),
		blocked: gauge("rotation_blocked", "1 while a rotation is blocked: a transaction uses the next table, and the current one grows."),
		parked:  gauge("parked_messages", "Messages set aside, since the owner or database of their shard is away."), parkedBytes: gauge("parked_bytes", "Size of the messages that are set aside."),
		full: gauge("parked_full", "1 while no more messages can be set aside, so that nothing that transactions publish is sent."),
	}
}

func (m *metrics) answered(c wirev1.Code) { m.messages.WithLabelValues(code.Name(c)).Inc() }

func (m *metrics) state(s backend.OutboxState) {
	m.bytes.Set(float64(s.Bytes))
	m.age.Set(s.Age.Seconds())
	m.blocked.Set(0)
	if s.Blocked {
		m.blocked.Set(1)
	}
}

func (m *metrics) waiting(rows, bytes int, full bool) {
	m.parked.Set(float64(rows))
	m.parkedBytes.Set(float64(bytes))
	m.full.Set(0)
	if full {
		m.full.Set(1)
	}
}

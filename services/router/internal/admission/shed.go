package admission

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/router/internal/shed"
)

// reason of a refusal, as it is counted.
type reason int

const (
	byProducerRate reason = iota
	byProducerInFlight
	byRate
	byWork
	byStore
	byEdges
	byLag
	reasons
)

var names = [reasons]struct {
	code wirev1.Code
	name string
}{
	byProducerRate:     {wirev1.Code_CODE_RATE_LIMITED, "producer_rate"},
	byProducerInFlight: {wirev1.Code_CODE_RATE_LIMITED, "producer_in_flight"},
	byRate:             {wirev1.Code_CODE_OVERLOADED, "rate"},
	byWork:             {wirev1.Code_CODE_OVERLOADED, "work"},
	byStore:            {wirev1.Code_CODE_OVERLOADED, "store"},
	byEdges:            {wirev1.Code_CODE_OVERLOADED, "edges"},
	byLag:              {wirev1.Code_CODE_OVERLOADED, "lag"},
}

func (a *Admission) count(reg prometheus.Registerer) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pushmesh_router_admission_refusals_total", Help: "Messages refused on arrival, by code and by the limit that refused them.",
	}, []string{"code", "reason"})
	for r, n := range names {
		a.refused[r] = refused.WithLabelValues(code.Name(n.code), n.name)
	}
	if reg == nil {
		return
	}
	reg.MustRegister(refused,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_in_flight_messages", Help: "Messages accepted and not answered yet.",
		}, func() float64 { return float64(a.inFlight.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pushmesh_router_in_flight_bytes", Help: "Size of the messages that are accepted and not answered yet.",
		}, func() float64 { return float64(a.bytes.Load()) }))
}

func overloaded(pressure float64, message string) *code.Error {
	return code.Retry(wirev1.Code_CODE_OVERLOADED, shed.Wait(pressure), message)
}

const tooLate = "this router is overloaded: it is late with its work"

// committed messages are the last to be refused.
const committed = shed.Priorities - 1

func (q *Ask) priority() uint32 {
	if q.Producer == "" {
		return committed
	}
	return q.Priority
}

// shed refuses by priority where something can't keep up. A durable message needs its store, every
// one the way to edges, and room and time in this router.
func (a *Admission) shed(q *Ask) (reason, *code.Error) {
	priority := q.priority()
	if pressure := a.Lag(); !shed.Passes(pressure, priority, q.Topic) {
		return byLag, overloaded(pressure, tooLate)
	}
	if pressure := a.crowd(); !a.work.Admits(pressure, priority) {
		return byWork, overloaded(pressure, "this router has too much in progress for a message of this priority")
	}
	if a.cfg.Edges != nil {
		if pressure, ok := a.cfg.Edges(priority); !ok {
			return byEdges, overloaded(pressure, "too much is queued for edges for a message of this priority")
		}
	}
	if q.Durable && q.Topic != "" {
		return a.stored(q.Topic, priority)
	}
	return 0, nil
}

// crowd is how full this router is of messages in work.
func (a *Admission) crowd() (pressure float64) {
	if limit := a.share(a.cfg.Overall).InFlight; limit > 0 {
		pressure = float64(a.inFlight.Load()) / float64(limit)
	}
	if a.cfg.MaxBytes > 0 {
		pressure = max(pressure, float64(a.bytes.Load())/float64(a.cfg.MaxBytes))
	}
	return pressure
}

func (a *Admission) stored(topic string, priority uint32) (reason, *code.Error) {
	if a.cfg.Store == nil {
		return 0, nil
	}
	if pressure, ok := a.cfg.Store(topic, priority); !ok {
		return byStore, overloaded(pressure, "too much is queued for the store for a message of this priority")
	}
	return 0, nil
}

// Lag is the pressure of what this router has no time for (shed.Passes). It costs next to nothing,
// so that it can be asked before anything else is done with a message; RefuseLate is told of those
// that were refused so.
func (a *Admission) Lag() float64 {
	if a.cfg.Lag == nil {
		return 0
	}
	return a.cfg.Lag()
}

// RefuseLate counts n refusals at once, and charges the producer for them.
func (a *Admission) RefuseLate(now time.Time, producer string, n int) error {
	return a.refuse(now, producer, n, byLag, overloaded(a.Lag(), tooLate))
}

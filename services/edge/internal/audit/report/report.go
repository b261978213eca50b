// Package report puts what happens to an event loop's connections and subscriptions into the loop's
// ring, where somebody wants to know: a record of bounded size, which allocates nothing. Everything
// else about events is done off the loop.
package report

import (
	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/eventring"
	"github.com/pushmesh/pushmesh/services/edge/internal/audit/refusals"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// Who a record is about. Texts are good until the loop's next change.
type Who struct {
	At                      uint64 // now, Unix time in microseconds
	Conn                    uint64 // the connection's id
	ClientID, User, Session string
	Backend                 bool
}

// Delivery is what reports need of the loop's connections.
type Delivery interface{ Who(c exchange.Conn) Who }

// Reporter is used by one loop alone.
type Reporter struct {
	delivery Delivery
	ring     *eventring.Ring // nil: nobody wants anything
	wanted   events.Mask
	refusals *refusals.Sampler // nil: none are logged

	slow       map[uint32]slowReport // by slot
	suppressed uint64
}

// New makes a reporter of nothing, until somebody wants something.
func New(d Delivery, ring *eventring.Ring, log *refusals.Sampler) *Reporter {
	return &Reporter{delivery: d, ring: ring, refusals: log}
}

// Refused has a refusal logged, if it is of those that are.
func (r *Reporter) Refused(c exchange.Conn, what string, why *code.Error) {
	if !r.refusals.Wants(why) {
		return
	}
	w := r.delivery.Who(c)
	who := w.User
	if who == "" && w.ClientID != "" {
		who = "client:" + w.ClientID
	}
	r.refusals.Put(w.At, &refusals.Refusal{Who: who, Conn: w.Conn, What: what, Why: why})
}

// Want says which kinds of events somebody wants from now on.
func (r *Reporter) Want(kinds events.Mask) {
	if r.ring != nil {
		r.wanted = kinds
	}
}

// Wants reports whether somebody wants a kind.
func (r *Reporter) Wants(k events.Kind) bool { return r.wanted.Has(k) }

// put completes a record about a connection, if somebody wants it.
func (r *Reporter) put(c exchange.Conn, e *eventring.Record) {
	if !r.wanted.Has(e.Kind) {
		return
	}
	w := r.delivery.Who(c)
	e.At, e.Conn, e.ClientID, e.User, e.Session, e.Backend = w.At, w.Conn, w.ClientID, w.User, w.Session, w.Backend
	r.ring.Put(e)
}

// Connected reports that a connection was welcomed.
func (r *Reporter) Connected(c exchange.Conn, resumed bool) {
	r.put(c, &eventring.Record{Kind: events.Connect, Flag: resumed})
}

// Disconnected reports that one that was welcomed ends.
func (r *Reporter) Disconnected(c exchange.Conn, why wirev1.Code, reason string) {
	r.put(c, &eventring.Record{Kind: events.Disconnect, Code: int32(why), Reason: reason})
}

// Subscribed reports that a subscription was answered.
func (r *Reporter) Subscribed(c exchange.Conn, filter, group string, ack bool) {
	r.put(c, &eventring.Record{Kind: events.Subscribe, Name: filter, Group: group, Flag: ack})
}

// Unsubscribed reports that one that was answered ended before its connection.
func (r *Reporter) Unsubscribed(c exchange.Conn, filter, group string, why wirev1.Code, reason string) {
	r.put(c, &eventring.Record{Kind: events.Unsubscribe, Name: filter, Group: group, Code: int32(why), Reason: reason})
}

// Delivered reports that a message was ACKed.
func (r *Reporter) Delivered(c exchange.Conn, topic, group string, epoch, seq uint64) {
	r.put(c, &eventring.Record{Kind: events.Delivered, Name: topic, Group: group, Epoch: epoch, Seq: seq})
}

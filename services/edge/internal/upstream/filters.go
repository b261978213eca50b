package upstream

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
)

// filtersWaiting bounds the content filters that wait to be compiled: one goroutine does, which
// takes milliseconds for long ones.
const filtersWaiting = 16_384

// Filter has a content filter compiled.
func (m *Mesh) Filter(conn exchange.Conn, sub uint32, filter, text string) {
	ok := m.compiling.TryDo(filtersWaiting, func() {
		id, err := m.wheres.Add(filters.Key{Conn: conn, Sub: sub}, filter, text)
		m.Post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Program: id, Err: err})
	})
	if !ok {
		m.Post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many content filters wait to be compiled")})
	}
}

// Unfilter ends the Filter of a subscription.
func (m *Mesh) Unfilter(conn exchange.Conn, sub uint32) {
	m.compiling.Do(func() { m.wheres.Remove(filters.Key{Conn: conn, Sub: sub}) })
}

// Bounds of what was read of logs and waits to be judged: sixteen reads of whole ranges and more.
const (
	rangesMessages = 1 << 17
	rangesBytes    = 64 << 20
)

// take has the feed put messages of one topic in order: at once, or once they are judged where
// somebody filters the topic. What follows such messages waits for them, whether it still has to be
// judged or not.
func (m *Mesh) take(msgs []*exchange.Message) {
	topic := msgs[0].Topic
	if !m.wheres.Wants(topic) && !m.judging.Busy(topic) {
		m.ordered(msgs)
		return
	}
	msgs = slices.Clone(msgs)
	refused := m.judging.Put(topic, msgs, func() { m.ops.Do(func() { m.judged(topic, msgs) }) })
	if refused != wirev1.Code_CODE_OK && msgs[0].Epoch != 0 {
		m.unjudged[topic] = true
		m.findUnjudged(topic)
	}
}

func (m *Mesh) judged(topic string, msgs []*exchange.Message) {
	m.ordered(msgs)
	m.judging.Release(topic, msgs)
	m.findUnjudged(topic)
}

func (m *Mesh) ordered(msgs []*exchange.Message) {
	for _, msg := range msgs {
		m.feed.Deliver(m.now, msg)
	}
}

// findUnjudged has a durable topic's head compared that lost messages, once nothing of it waits any
// more: until then what follows shows the hole.
func (m *Mesh) findUnjudged(topic string) {
	if m.unjudged[topic] && !m.judging.Busy(topic) {
		delete(m.unjudged, topic)
		m.checkSome("where", []string{topic})
	}
}

// judgeRange calls done in the mesh's goroutine once what was read is judged; with an error where
// too much waits for that.
func (m *Mesh) judgeRange(r exchange.Range, done func(exchange.Range)) {
	if m.wheres.Judged(r.Messages) {
		m.ops.Do(func() { done(r) })
		return
	}
	msgs := r.Messages
	refused := m.rejudging.Put(r.Topic, msgs, func() {
		m.ops.Do(func() {
			m.rejudging.Release(r.Topic, msgs)
			done(r)
		})
	})
	if refused != wirev1.Code_CODE_OK {
		m.ops.Do(func() { done(exchange.Range{Topic: r.Topic, From: r.From, Err: crowded}) })
	}
}

var crowded = code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many messages wait for content filters here")

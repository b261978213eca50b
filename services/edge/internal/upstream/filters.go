package upstream

import (
	"slices"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/lifecycle"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/filters"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/serial"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/turns"
)

// filtersWaiting bounds the content filters that wait to be compiled: one goroutine does, which
// takes milliseconds for long ones.
const filtersWaiting = 16_384

// Bounds of what was read of logs and waits to be judged: sixteen reads of whole ranges and more.
const (
	rangesMessages = 1 << 17
	rangesBytes    = 64 << 20
)

var crowded = code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many messages wait for content filters here")

// judging compiles the content filters of subscriptions and evaluates them for messages. It is safe
// for concurrent use, but for put and lost, which are for the mesh's goroutine.
type judging struct {
	ops       *serial.Queue // the mesh's goroutine
	loops     *outlets
	wheres    *filters.Registry
	compiling *turns.Lanes[exchange.Conn] // filters that come and go: connections take turns
	routed    *filters.Stage              // messages of routers
	ranges    *filters.Stage              // what was read of logs
	unjudged  map[string]bool             // topics that lost messages for which routed had no room
}

func newJudging(cfg *Config, ops *serial.Queue, loops *outlets) judging {
	wheres := filters.New(filters.Config{Budget: cfg.FilterBudget, Memory: cfg.FilterMemory})
	return judging{
		ops: ops, loops: loops, wheres: wheres, compiling: turns.NewLanes[exchange.Conn](), unjudged: map[string]bool{},
		routed: filters.NewStage(wheres, cfg.Judging),
		ranges: filters.NewStage(wheres, filters.StageConfig{Messages: rangesMessages, Bytes: rangesBytes}),
	}
}

func (j *judging) start(group *lifecycle.Group) {
	group.Go("edge-mesh-filters", j.compiling.Serve)
	for _, stage := range []*filters.Stage{j.routed, j.ranges} {
		for range stage.Workers() {
			group.Go("edge-mesh-judge", stage.Serve)
		}
	}
}

// add has the content filter of a subscription compiled, and tells its loop.
func (j *judging) add(conn exchange.Conn, sub uint32, filter, text string) {
	ok := j.compiling.TryDo(filtersWaiting, conn, func() {
		id, err := j.wheres.Add(filters.Key{Conn: conn, Sub: sub}, filter, text)
		j.loops.post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Program: id, Err: err})
	})
	if !ok {
		j.loops.post(conn.Loop, exchange.Filtered{Conn: conn, Sub: sub, Err: code.Retry(wirev1.Code_CODE_OVERLOADED, time.Second, "too many content filters wait to be compiled")})
	}
}

func (j *judging) remove(conn exchange.Conn, sub uint32) {
	j.compiling.Do(conn, func() { j.wheres.Remove(filters.Key{Conn: conn, Sub: sub}) })
}

// put calls done in the mesh's goroutine once messages of one topic are judged; refused ones are
// not, because too much waits. release follows done.
func (j *judging) put(topic string, msgs []*exchange.Message, done func()) (refused bool) {
	refused = j.routed.Put(topic, msgs, func() { j.ops.Do(done) }) != wirev1.Code_CODE_OK
	if refused && msgs[0].Epoch != 0 {
		j.unjudged[topic] = true
	}
	return refused
}

func (j *judging) release(topic string, msgs []*exchange.Message) { j.routed.Release(topic, msgs) }

// lost reports once whether messages of a durable topic were refused, when nothing of it waits any
// more: until then what follows shows the hole.
func (j *judging) lost(topic string) bool {
	if !j.unjudged[topic] || j.routed.Busy(topic) {
		return false
	}
	delete(j.unjudged, topic)
	return true
}

// isJudged reports whether messages were judged by all content filters there are by now.
func (j *judging) isJudged(msgs []*exchange.Message) bool { return j.wheres.Judged(msgs) }

// judgeRange calls done in the mesh's goroutine once what was read is judged; with an error where
// too much waits for that.
func (j *judging) judgeRange(r exchange.Range, done func(exchange.Range)) {
	if j.isJudged(r.Messages) {
		j.ops.Do(func() { done(r) })
		return
	}
	msgs := r.Messages
	refused := j.ranges.Put(r.Topic, msgs, func() {
		j.ops.Do(func() {
			j.ranges.Release(r.Topic, msgs)
			done(r)
		})
	})
	if refused != wirev1.Code_CODE_OK {
		j.ops.Do(func() { done(exchange.Range{Topic: r.Topic, From: r.From, Err: crowded}) })
	}
}

// Filter has a content filter compiled.
func (m *Mesh) Filter(conn exchange.Conn, sub uint32, filter, text string) {
	m.judging.add(conn, sub, filter, text)
}

// Unfilter ends the Filter of a subscription.
func (m *Mesh) Unfilter(conn exchange.Conn, sub uint32) { m.judging.remove(conn, sub) }

// take has the feed put messages of one topic in order: at once, or once they are judged where
// somebody filters the topic. What follows such messages waits for them, whether it still has to be
// judged or not.
func (m *Mesh) take(msgs []*exchange.Message) {
	topic, j := msgs[0].Topic, &m.judging
	if !j.wheres.Wants(topic) && !j.routed.Busy(topic) {
		m.ordered(msgs)
		return
	}
	msgs = slices.Clone(msgs)
	if j.put(topic, msgs, func() { m.judged(topic, msgs) }) {
		m.findUnjudged(topic)
	}
}

func (m *Mesh) judged(topic string, msgs []*exchange.Message) {
	m.ordered(msgs)
	m.judging.release(topic, msgs)
	m.findUnjudged(topic)
}

func (m *Mesh) ordered(msgs []*exchange.Message) {
	for _, msg := range msgs {
		m.feed.Deliver(m.now, msg)
	}
}

// findUnjudged has a topic's head compared that lost messages.
func (m *Mesh) findUnjudged(topic string) {
	if m.judging.lost(topic) {
		m.checkSome("where", []string{topic})
	}
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// table is an outbox whose rows are there from the beginning.
type table struct {
	rows    []backend.OutboxRow
	through int64
	last    bool
	refused []backend.OutboxRefusal
	lost    error
}

func (o *table) Pending(_ context.Context, limit int) (all []backend.OutboxEntry, repeated bool, err error) {
	for _, r := range o.rows {
		if r.ID > o.through && len(all) < limit {
			all = append(all, backend.OutboxEntry{ID: r.ID, Size: len(r.Payload) + 512})
		}
	}
	return all, false, o.lost
}

func (o *table) Rows(_ context.Context, ids []int64) (all []backend.OutboxRow, err error) {
	for _, id := range ids {
		all = append(all, o.rows[id-1])
	}
	return all, o.lost
}

func (o *table) Settle(_ context.Context, through int64, last bool, refused []backend.OutboxRefusal) error {
	o.through, o.last, o.refused = through, last, append(o.refused, refused...)
	return o.lost
}

func (o *table) Rotate(context.Context, time.Duration, int64) (backend.OutboxState, error) {
	return backend.OutboxState{}, o.lost
}

func (o *table) Close() error { return nil }

// mesh is a router with its stores, as far as the order and the keys of messages go, with faults that are drawn.
type mesh struct {
	t     *rapid.T
	most  int // faults left
	log   map[string][]string
	keys  map[string]bool
	seqs  map[string]uint64
	fresh map[string]bool // sent before, and not known to be refused
}

func (m *mesh) fault(name string) bool {
	if m.most == 0 || !rapid.Bool().Draw(m.t, name) {
		return false
	}
	m.most--
	return true
}

func (m *mesh) request(_ context.Context, subject string, data []byte) ([]byte, error) {
	var in meshv1.OutboxPublish
	if subject != bus.OutboxPublish || proto.Unmarshal(data, &in) != nil {
		m.t.Fatalf("a request on %s", subject)
	}
	if m.fault("nobody") {
		return nil, bus.ErrNobody
	}
	out := &meshv1.ClientPublishReply{}
	for _, it := range in.GetItems() {
		out.Results = append(out.Results, &meshv1.ClientPublishReply_Result{Code: m.publish(in.GetProducerId(), it)})
	}
	if m.fault("lost answer") {
		return nil, errors.New("timeout")
	}
	return proto.Marshal(out)
}

func (m *mesh) publish(producer []byte, it *meshv1.OutboxPublish_Item) wirev1.Code {
	position := string(producer) + it.GetTopic()
	if m.fresh[it.GetDedupeKey()] && !it.GetRepeated() {
		m.t.Fatalf("%s was sent before, and is not marked", it.GetPayload())
	}
	if seq := it.GetProducerSeq(); seq > 0 && seq != m.seqs[position]+1 {
		return wirev1.Code_CODE_OUT_OF_ORDER
	}
	if m.fault("overloaded") {
		return wirev1.Code_CODE_OVERLOADED
	}
	if string(it.GetPayload()) == "bad" {
		return wirev1.Code_CODE_PAYLOAD_TOO_LARGE
	}
	if it.GetProducerSeq() > 0 {
		m.seqs[position]++
	}
	m.fresh[it.GetDedupeKey()] = true
	if !m.keys[it.GetDedupeKey()] {
		m.keys[it.GetDedupeKey()] = true
		m.log[it.GetTopic()] = append(m.log[it.GetTopic()], string(it.GetPayload()))
	}
	return wirev1.Code_CODE_OK
}

// Whatever a router refuses, and whichever answers are lost: each message is in its topic's log once, in order; what can't be published is
// noted as refused.
func TestEachIsPublishedOnceInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := &table{}
		want := map[string][]string{}
		bad := 0
		for i := range rapid.IntRange(1, 30).Draw(rt, "rows") {
			r := backend.OutboxRow{ID: int64(i + 1), Topic: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "topic"), Payload: []byte(fmt.Sprint(i))}
			r.MessageID[0] = byte(i + 1)
			if rapid.IntRange(0, 9).Draw(rt, "bad") == 0 {
				r.Payload = []byte("bad")
				bad++
			} else {
				want[r.Topic] = append(want[r.Topic], string(r.Payload))
			}
			o.rows = append(o.rows, r)
		}
		m := &mesh{t: rt, most: 20, log: map[string][]string{}, keys: map[string]bool{}, seqs: map[string]uint64{}, fresh: map[string]bool{}}
		synctest.Test(t, func(*testing.T) {
			r := New(Config{Log: slog.New(slog.DiscardHandler), Request: m.request})
			r.outbox, r.sender = o, &sender{request: m.request, outbox: o, metrics: r.metrics, log: r.cfg.Log}
			if some, err := r.read(context.Background()); err != nil || !some {
				rt.Fatalf("some %v, %v", some, err)
			}
		})
		if fmt.Sprint(m.log) != fmt.Sprint(want) {
			rt.Fatalf("published %v, want %v", m.log, want)
		}
		if len(o.refused) != bad || o.through != int64(len(o.rows)) || !o.last {
			rt.Fatalf("%d of %d bad ones refused; settled to %d of %d, last %v", len(o.refused), bad, o.through, len(o.rows), o.last)
		}
	})
}

// A store that lost the right stops sending.
func TestALostRightEndsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &table{rows: []backend.OutboxRow{{ID: 1, Topic: "a"}}}
		asked := 0
		request := func(context.Context, string, []byte) ([]byte, error) {
			asked++
			o.lost = errors.New("the connection is gone")
			return nil, errors.New("timeout")
		}
		s := &sender{request: request, outbox: o, metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler)}
		if _, err := s.send(t.Context(), []int64{1}, false); !errors.Is(err, o.lost) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
	})
}

func TestPiecesKeepTheirBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var rows []backend.OutboxEntry
		for i, size := range rapid.SliceOfN(rapid.IntRange(0, pieceBytes*3/2), 0, 50).Draw(rt, "sizes") {
			rows = append(rows, backend.OutboxEntry{ID: int64(i), Size: size})
		}
		next := int64(0)
		for _, piece := range pieces(rows) {
			size := 0
			for _, id := range piece {
				if id != next {
					rt.Fatalf("row %d where %d was expected", id, next)
				}
				next++
				size += rows[id].Size
			}
			if len(piece) > pieceRows || size > pieceBytes && len(piece) > 1 {
				rt.Fatalf("a piece of %d rows, %d bytes", len(piece), size)
			}
		}
		if int(next) != len(rows) {
			rt.Fatalf("%d of %d rows", next, len(rows))
		}
	})
}

// rights is a database whose outbox one reader holds at a time.
type rights struct{ held bool }

func (d *rights) OpenOutbox(context.Context, backend.Owner) (backend.Outbox, error) {
	if d.held {
		return nil, backend.ErrHeld
	}
	d.held = true
	return &right{table{}, d}, nil
}

type right struct {
	table
	of *rights
}

func (r *right) Close() error {
	r.of.held = false
	return nil
}

// The store that should read the outbox reaches no router: another one reads it within seconds, and gives it back when the first can again.
func TestAnotherStoreReadsWhileTheFirstReachesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, able := &rights{}, true
		reader := func(mine bool, able func() bool) *Reader {
			return New(Config{Database: db, Log: slog.New(slog.DiscardHandler), Mine: func() bool { return mine }, Able: able})
		}
		first, second := reader(true, func() bool { return able }), reader(false, nil)
		after := func(when string, d time.Duration, wantFirst, wantSecond bool) {
			t.Helper()
			for end := time.Now().Add(d); time.Now().Before(end); <-time.After(claimEvery) {
				first.turn(t.Context())
				second.turn(t.Context())
			}
			if (first.outbox != nil) != wantFirst || (second.outbox != nil) != wantSecond {
				t.Errorf("%s: the first reads %v, the second %v", when, first.outbox != nil, second.outbox != nil)
			}
		}
		after("at first", time.Minute, true, false)
		able = false
		after("the first reaches no router", standInEvery+claimEvery, false, true)
		after("for long", standIn-2*standInEvery, false, true)
		able = true
		after("and can again", standIn, true, false)
	})
}

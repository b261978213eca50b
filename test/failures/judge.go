package failures

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// readLog reads a whole topic: its ids, by seq.
func (w *world) readLog(t *testing.T, topic string) (ids []uint64) {
	t.Helper()
	conn, err := grpc.NewClient(w.RouterAddrs[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := pushmeshv1.NewHistoryServiceClient(conn).Read(t.Context(), &pushmeshv1.ReadRequest{Topic: topic, FromSeq: 1})
	for err == nil {
		var res *pushmeshv1.ReadResponse
		if res, err = stream.Recv(); err == nil {
			for _, m := range res.GetMessages() {
				if m.GetSeq() != uint64(len(ids))+1 {
					t.Fatalf("%s: entry %d of the log is seq %d", topic, len(ids)+1, m.GetSeq())
				}
				ids = append(ids, identify(m.GetPayload()))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("%s can't be read: %v", topic, err)
	}
	return ids
}

// judge checks the promises once all is over: nothing durable is lost, or there twice, or out of
// order; nothing ephemeral comes twice.
func (w *world) judge(t *testing.T) {
	t.Helper()
	logs := map[string][]uint64{}
	ephemeral := map[uint64]bool{}
	for i, p := range w.producers {
		log := w.readLog(t, p.durable())
		logs[p.durable()] = log
		p.judge(t, log, i < len(w.producers)-1)
		for _, o := range p.list(time.Time{}, time.Time{}) {
			ephemeral[o.id] = !o.durable
		}
	}
	for _, d := range w.diaries {
		d.judge(t, logs, ephemeral)
	}
}

// judge compares the log of a producer's topic with what it was answered.
func (p *producer) judge(t *testing.T, log []uint64, ordered bool) {
	t.Helper()
	at := map[uint64]uint64{}
	for i, id := range log {
		if at[id] != 0 {
			t.Errorf("%s: message %d is there twice, as %d and %d", p.durable(), uint32(id), at[id], i+1)
		}
		if ordered && i > 0 && id < log[i-1] {
			t.Errorf("%s: message %d is stored behind %d", p.durable(), uint32(id), uint32(log[i-1]))
		}
		at[id] = uint64(i) + 1
	}
	offered := 0
	for _, o := range p.list(time.Time{}, time.Time{}) {
		if !o.durable {
			continue
		}
		offered++
		switch {
		case o.answer.IsZero() || o.err != nil:
			t.Errorf("%s: message %d was not published: %v", p.durable(), uint32(o.id), o.err)
		case at[o.id] != o.seq:
			t.Errorf("%s: message %d was answered as %d and lies at %d (0: nowhere)", p.durable(), uint32(o.id), o.seq, at[o.id])
		}
	}
	if len(log) > offered {
		t.Errorf("%s: %d in the log, %d were offered", p.durable(), len(log), offered)
	}
}

// judge checks that a subscriber was given every durable message once and in order, and no
// ephemeral one twice.
func (d *diary) judge(t *testing.T, logs map[string][]uint64, ephemeral map[uint64]bool) {
	t.Helper()
	next := map[string]uint64{}
	once := map[uint64]bool{}
	wrong := 0
	for _, a := range d.list(time.Time{}) {
		switch {
		case a.seq == 0 && (!ephemeral[a.id] || once[a.id]):
			t.Errorf("%s: ephemeral message %x of %s came twice, or nobody published it", d.name, a.id, a.topic)
			wrong++
		case a.seq == 0:
			once[a.id] = true
		case a.seq != next[a.topic]+1:
			t.Errorf("%s: %s: %d came after %d", d.name, a.topic, a.seq, next[a.topic])
			wrong++
			next[a.topic] = a.seq
		case a.seq > uint64(len(logs[a.topic])) || logs[a.topic][a.seq-1] != a.id:
			t.Errorf("%s: %s: %d is not the message that the log has there", d.name, a.topic, a.seq)
			wrong++
			next[a.topic] = a.seq
		default:
			next[a.topic] = a.seq
		}
		if wrong > 5 {
			return
		}
	}
	for topic, log := range logs {
		if next[topic] != uint64(len(log)) {
			t.Errorf("%s: %s: %d of %d came", d.name, topic, next[topic], len(log))
		}
	}
}

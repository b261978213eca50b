package policy

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Without NATS a change is seen by asking, within a second.
func TestWithoutNATSAChangeIsSeenByAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{asked: make(chan uint64, 1)}
		s.set(false, 1, ns("a", &pushmeshv1.Policy{}))
		w := NewWatch(s, nil, "router.r", slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for version := uint64(2); version < 10; version++ {
			s.set(false, version, ns("a", &pushmeshv1.Policy{Durable: version%2 == 0}))
			changed := time.Now()
			for w.Version() != version {
				<-time.After(time.Millisecond)
				synctest.Wait()
			}
			if took := time.Since(changed); took > time.Second || w.Table().For("a").Durable != (version%2 == 0) {
				t.Errorf("version %d after %v", version, took)
			}
			// changes come at any time
			<-time.After(time.Duration(version) * 100 * time.Millisecond)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A beat that names a later version has the store asked at once, others not.
func TestABeatRepairsALostNotice(t *testing.T) {
	s := &store{asked: make(chan uint64, 16)}
	s.set(false, 3, ns("a", &pushmeshv1.Policy{}))
	w, tables := start(t, s)
	receive(t, tables)
	beat := func(version uint64) {
		data, err := proto.Marshal(&meshv1.StoreBeat{StoreId: "s", NamespacesVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		w.beat(data)
	}
	w.beat([]byte("\xff"))
	for _, old := range []uint64{0, 2, 3} {
		beat(old)
	}
	if w.pace.Wanted() {
		t.Error("asked because of a beat that says nothing new")
	}
	s.set(false, 4, ns("a", &pushmeshv1.Policy{Durable: true}))
	beat(4)
	if !receive(t, tables).For("a").Durable {
		t.Error("the change does not apply")
	}
}

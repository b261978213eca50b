package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
	"github.com/pushmesh/pushmesh/test/harness"
)

// What a router refuses by priority in the middle of ordered topics is sent again, and nothing
// overtakes it: each topic's messages are stored once and in order, whatever their priorities.
func TestRefusedByPriorityAndStillInOrder(t *testing.T) {
	m := harness.Start(t, harness.Options{AppendWait: time.Millisecond})
	p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: m.RouterAddrs, Buffer: 10_000, MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closing.Close(p); err != nil {
			t.Error(err)
		}
	}()
	const topics, each = 8, 120
	var mu sync.Mutex
	last := map[string]uint64{}
	for round := range 30 {
		for i := range topics * each {
			topic := fmt.Sprintf("room/order-%d", i%topics)
			want := uint64(round*each + i/topics + 1)
			err := p.PublishAsync(t.Context(), pushmesh.Message{Topic: topic, Payload: []byte("x"), Priority: uint32(i / topics % 10)}, func(r pushmesh.Result, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil || r.Seq != want || r.Duplicate || last[topic] != want-1 {
					t.Errorf("%s: message %d after %d is %+v, %v", topic, want, last[topic], r, err)
				}
				last[topic] = r.Seq
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := refusals(t, m); n != "0" {
			t.Logf("%s refused in %d rounds", n, round+1)
			return
		}
	}
	t.Error("nothing was refused: there is nothing to see")
}

// refusals for the store's sake.
func refusals(t *testing.T, m *harness.Mesh) string {
	t.Helper()
	resp, err := http.Get("http://" + m.RouterHTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), `pushmesh_router_admission_refusals_total{code="OVERLOADED",reason="store"} `); ok {
			return n
		}
	}
	t.Fatal("no such metric")
	return ""
}

package link

import (
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// A round trip is reported once: a Ping behind one that was not answered knows none.
func TestEachRoundTripIsReportedOnce(t *testing.T) {
	ours, edge := net.Pipe()
	defer edge.Close()
	l, at := New(ours), New(edge)
	defer l.Close()
	l.beat = time.Hour
	l.StartPings()
	ping := func() *wirev1.Ping {
		t.Helper()
		go l.ping()
		_, body, err := at.Next()
		p := &wirev1.Ping{}
		if err != nil || proto.Unmarshal(body, p) != nil {
			t.Fatal(err)
		}
		return p
	}
	first := ping()
	if first.GetLastRttUs() != 0 {
		t.Fatalf("the first Ping reports %d µs", first.GetLastRttUs())
	}
	body, err := proto.Marshal(&wirev1.Pong{SentAt: first.GetSentAt()})
	if err != nil {
		t.Fatal(err)
	}
	l.Pong(body)
	if p := ping(); p.GetLastRttUs() == 0 || p.GetLastRttUs() != l.rtt.Load() {
		t.Fatalf("the second Ping reports %d µs of %d", p.GetLastRttUs(), l.rtt.Load())
	}
	if p := ping(); p.GetLastRttUs() != 0 || l.rtt.Load() == 0 {
		t.Fatalf("the third Ping reports %d µs, and %d are known", p.GetLastRttUs(), l.rtt.Load())
	}
}

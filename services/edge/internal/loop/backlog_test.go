package loop

import (
	"errors"
	"io"
	"testing"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
)

// block holds a loop up until release is called; held is closed once it is.
func block(t *testing.T, l *Loop) (held <-chan struct{}, release func()) {
	t.Helper()
	is, resume := make(chan struct{}), make(chan struct{})
	if !l.Post(exchange.Count{Reply: func([]uint64) { close(is); <-resume }}) {
		t.Fatal("refused")
	}
	return is, func() { close(resume) }
}

// Who waits in the listener's backlog when a stop begins, whole turns' worth of them and with a
// Hello already sent, is told to go and not reset.
func TestTheBacklogIsToldToGo(t *testing.T) {
	l, _ := run(t, Limits{})
	first, release := block(t, l)
	<-first
	done := make(chan struct{})
	if !l.Post(exchange.Drain{DeadlineMS: uint32(patience.Milliseconds()), Addresses: func() []string { return []string{"elsewhere:7400"} }, Done: func() { close(done) }}) {
		t.Fatal("refused")
	}
	second, goOn := block(t, l)
	release()
	<-second // the loop drains, and has not looked at its listener since
	var late []*client
	for range 2*acceptBudget + 10 {
		c := dial(t, l)
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: 1})
		late = append(late, c)
	}
	goOn()
	for i, c := range late {
		var g wirev1.GoAway
		c.read(wirev1.FrameType_FRAME_TYPE_GO_AWAY, &g)
		if g.GetCode() != wirev1.Code_CODE_DRAINING || len(g.GetAddresses()) != 1 {
			t.Fatalf("connection %d: %v", i, &g)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("connection %d, after GoAway: %v", i, err)
		}
		_ = c.Close()
	}
	<-done
}

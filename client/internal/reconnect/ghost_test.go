package reconnect

import (
	"testing"
	"time"
)

// A Hello that nobody answered may have taken a session for a minute, and once.
func TestAGhostIsForgotten(t *testing.T) {
	now := time.Now()
	var g Ghost
	if g.Took(now) {
		t.Error("there was none")
	}
	g.Left(now)
	if !g.Took(now.Add(ghostFor)) || g.Took(now) {
		t.Error("it takes the session, and once")
	}
	g.Left(now)
	if g.Took(now.Add(ghostFor + 1)) {
		t.Error("after its time")
	}
}

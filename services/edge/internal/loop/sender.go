package loop

import (
	"fmt"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/uring"
)

// SendMode is how a loop sends.
type SendMode = poll.Mode

// openSender makes what the loop sends with. why says what speaks against io_uring where it was not
// asked for.
func openSender(mode SendMode) (s poll.Sender, why, err error) {
	if mode == poll.ModeWrite {
		return poll.NewWriter(), nil, nil
	}
	ring, why := uring.New()
	switch {
	case why == nil:
		return ring, nil, nil
	case mode == poll.ModeUring:
		return nil, nil, fmt.Errorf("--send uring: %w", why)
	}
	return poll.NewWriter(), why, nil
}

// ParseSendMode finds the mode; "" is auto.
func ParseSendMode(s string) (SendMode, error) {
	switch m := SendMode(s); m {
	case "":
		return poll.ModeAuto, nil
	case poll.ModeAuto, poll.ModeUring, poll.ModeWrite:
		return m, nil
	}
	return "", fmt.Errorf("--send %q must be auto, uring or write", s)
}

// SendMode is how the loop sends once it was started, and why not through io_uring where that was
// left to it.
func (l *Loop) SendMode() (mode SendMode, why error) { return l.Stats().SendMode, l.noRing }

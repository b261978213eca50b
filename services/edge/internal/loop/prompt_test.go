package loop

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// prompt is a netpoll.Poller for loops whose turns are a test's. That one's goroutines tell of an
// event a moment after it, for which such a test doesn't wait; so Events asks the kernel too. An
// event that comes twice does no harm.
type prompt struct {
	poll.Poller
	watched map[int]poll.Event // slots and generations by descriptor
}

// turnedByHand has the loop, which has no connections yet, see at once what happens.
func turnedByHand(l *Loop) {
	if testPoller.Chosen() == PollerNet {
		l.poller = &prompt{l.poller, map[int]poll.Event{}}
	}
}

// Add implements poll.Poller.
func (p *prompt) Add(fd int, slot, gen uint32) error {
	p.watched[fd] = poll.Event{Slot: slot, Gen: gen}
	return p.Poller.Add(fd, slot, gen)
}

// Drop implements poll.Poller.
func (p *prompt) Drop(fd int) error {
	delete(p.watched, fd)
	return p.Poller.Drop(fd)
}

// Events implements poll.Poller.
func (p *prompt) Events(dst []poll.Event) (all []poll.Event, full bool, err error) {
	dst, full, err = p.Poller.Events(dst)
	dst = append(dst, poll.Event{Slot: poll.SlotListener, Readable: true})
	var fds []unix.PollFd
	for fd := range p.watched {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(fds, 0); err != nil {
		return dst, true, nil //nolint:nilerr // interrupted: the next turn asks again
	}
	for _, f := range fds {
		if e := p.watched[int(f.Fd)]; f.Revents != 0 {
			e.Readable, e.HungUp, e.Broken = true, true, f.Revents&unix.POLLERR != 0
			dst = append(dst, e)
		}
	}
	return dst, full, err
}

func TestPollersByName(t *testing.T) {
	best := PollerNet
	if poll.HasEpoll {
		best = PollerEpoll
	}
	for name, want := range map[string]PollerKind{"": best, "auto": best, "epoll": PollerEpoll, "net": PollerNet} {
		if k, err := ParsePoller(name); err != nil || k.Chosen() != want {
			t.Fatalf("%q is %s, %v", name, k.Chosen(), err)
		}
	}
	if _, err := ParsePoller("pigeon"); err == nil {
		t.Fatal("pigeon tells what happens")
	}
}

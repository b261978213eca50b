package netpoll

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
)

// doors are pollers that share a listener and listen.
func doors(t *testing.T, n int) []poll.Poller {
	t.Helper()
	all, err := Open("127.0.0.1:0", poll.Buffers{}, n, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if err := p.Listen(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// acceptAll takes who is dealt to a poller, until nobody is: want of them, for whom it waits,
// because the kernel may show a listener a moment later who has called.
func acceptAll(t *testing.T, p poll.Poller, want int) (n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		fd, _, err := p.Accept()
		switch {
		case err == nil:
			t.Cleanup(func() { poll.Close(fd) })
			n++
			continue
		case !errors.Is(err, poll.ErrAgain):
			t.Fatal(err)
		}
		if n >= want || time.Now().After(deadline) {
			return n
		}
		runtime.Gosched()
	}
}

func TestCallersAreDealtInTurns(t *testing.T) {
	all := doors(t, 3)
	for range 30 {
		dial(t, all[0])
	}
	for i, p := range all {
		until(t, p, "somebody calls", func(e poll.Event) bool { return e.Slot == poll.SlotListener })
		if n := acceptAll(t, p, 10); n != 10 {
			t.Fatalf("poller %d has %d of 30", i, n)
		}
	}
}

// A loop that does not accept holds nobody up but those who were dealt to it, and once all have
// enough the kernel holds who comes.
func TestALoopThatAcceptsNobodyHasABound(t *testing.T) {
	all := doors(t, 2)
	for range 3 * mostCallers {
		dial(t, all[0])
	}
	if n := acceptAll(t, all[1], 2*mostCallers); n != 2*mostCallers {
		t.Fatalf("one loop has %d of %d, want all but %d", n, 3*mostCallers, mostCallers)
	}
	if n := acceptAll(t, all[0], mostCallers); n != mostCallers {
		t.Fatalf("the other one has %d", n)
	}
}

func TestWhoWasNotAcceptedGoesToTheOthers(t *testing.T) {
	all := doors(t, 2)
	for range 8 {
		dial(t, all[0])
	}
	mine := acceptAll(t, all[1], 4)
	all[0].Deafen()
	all[0].Deafen() // once is enough
	if n := acceptAll(t, all[1], 8-mine); mine+n != 8 {
		t.Fatalf("%d and then %d of 8", mine, n)
	}
	late := dial(t, all[0]) // the listener is the other one's too
	if n := acceptAll(t, all[1], 1); n != 1 {
		t.Fatalf("%d of 1", n)
	}
	last := dial(t, all[0])
	all[1].Deafen()
	if n, err := last.Read(make([]byte, 1)); err == nil {
		t.Fatalf("%d bytes from nobody", n)
	}
	if err := late.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := all[1].Accept(); !errors.Is(err, poll.ErrAgain) {
		t.Fatalf("accepted behind a closed door: %v", err)
	}
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	if _, err := Open("no such address", poll.Buffers{}, 1, 1); err == nil {
		t.Fatal("bound to nonsense")
	}
}

package edge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
	"github.com/pushmesh/pushmesh/services/edge/internal/test/edgetest"
)

// files limits the descriptors that the process may have open.
func (p *process) files(n uint64) {
	p.t.Helper()
	limit := syscall.Rlimit{Cur: n, Max: 1 << 20}
	var was syscall.Rlimit
	call := func(to, from *syscall.Rlimit) {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(p.cmd.Process.Pid), syscall.RLIMIT_NOFILE,
			uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), 0, 0); errno != 0 {
			p.t.Fatal(errno)
		}
	}
	call(nil, &was)
	limit.Max = was.Max
	call(&limit, nil)
}

// opened is how many it has.
func (p *process) opened() uint64 {
	p.t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return uint64(len(all))
}

// Without a descriptor for anybody else an edge does what it did for those that it has, spends no
// time on those that wait, says so once, and takes them when it can.
func TestNoDescriptorIsLeft(t *testing.T) {
	w := newWorld(t)
	log := &record{}
	p := w.process(log)
	old := w.clientAt(p.addr, &wirev1.Hello{})
	old.subscribe(&wirev1.Subscribe{Id: 1, Filter: "room/1"})
	p.files(p.opened() + 3)

	var waiting []*client
	for range 20 {
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c := &client{t: t, conn: conn, seen: map[string]uint64{}}
		c.send(wirev1.FrameType_FRAME_TYPE_HELLO, &wirev1.Hello{Version: wire.Version})
		waiting = append(waiting, c)
	}
	full := func(most float64) {
		t.Helper()
		edgetest.WaitFor(t, "the edge to run out of descriptors", func() error {
			if n := p.metric("pushmesh_edge_accept_out_of_descriptors_total"); n < most {
				return fmt.Errorf("it met that %v times", n)
			}
			return nil
		})
	}
	full(1)
	edgetest.WaitFor(t, "the log", func() error {
		if log.count("no file descriptor is left") == 0 {
			return errors.New("nothing of that")
		}
		return nil
	})
	tries, turns := p.metric("pushmesh_edge_accept_out_of_descriptors_total"), p.metric("pushmesh_edge_loop_turns_total")
	full(tries + 10) // a try each tick of each loop that is full
	ticks, turned := p.metric("pushmesh_edge_accept_out_of_descriptors_total")-tries, p.metric("pushmesh_edge_loop_turns_total")-turns
	if turned > 100*ticks {
		t.Fatalf("loops have turned %v times in %v ticks", turned, ticks)
	}
	w.router.Send(w.store.Publish("room/1", 1)...)
	old.messages("room/1", 1)
	old.send(wirev1.FrameType_FRAME_TYPE_PING, &wirev1.Ping{SentAt: 7})
	old.read(wirev1.FrameType_FRAME_TYPE_PONG, &wirev1.Pong{})
	if n := log.count("no file descriptor is left"); n > 2 { // of each loop
		t.Fatalf("the log says %d times that no descriptor is left", n)
	}

	p.files(p.opened() + 200)
	for _, c := range waiting {
		c.read(wirev1.FrameType_FRAME_TYPE_WELCOME, &wirev1.Welcome{})
	}
	edgetest.WaitFor(t, "the log", func() error {
		if log.count("there are file descriptors again") != log.count("no file descriptor is left") {
			return errors.New("nothing of that")
		}
		return nil
	})
	w.router.Send(w.store.Publish("room/1", 1)...)
	old.messages("room/1", 2)
}

package loop

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/services/edge/internal/exchange"
	"github.com/pushmesh/pushmesh/services/edge/internal/sys/poll"
	"github.com/pushmesh/pushmesh/services/edge/internal/upstream/upstreamtest"
)

// pinnedTo counts the threads of this process that may run on one CPU alone.
func pinnedTo(t *testing.T, cpu int) (n int) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) == nil && set.Count() == 1 && set.IsSet(cpu) {
			n++
		}
	}
	return n
}

func TestPinnedLoopsKeepToTheirCPUs(t *testing.T) {
	cpus, err := poll.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	mesh := upstreamtest.New(func(exchange.Event) {})
	loops, err := NewAll(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, ListenAddr: "127.0.0.1:0", Poller: testPoller, CPUs: cpus, Limits: usual(Limits{})}, len(cpus)+1)
	if err != nil {
		t.Fatal(err)
	}
	before := pinnedTo(t, cpus[0])
	for _, l := range loops {
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := pinnedTo(t, cpus[0]) - before; len(cpus) > 1 && n != 2 {
		t.Errorf("%d threads are pinned to CPU %d, want the first loop's and the last one's", n, cpus[0])
	}
	for i := range 8 * len(loops) {
		dial(t, loops[0]).hello(&wirev1.Hello{ClientId: fmt.Sprint(i)})
	}
	for _, l := range loops {
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(cpus) > 1 {
		eventually(t, "the threads ended with their loops", func() bool { return pinnedTo(t, cpus[0]) == before })
	}
	if l, err := single(Config{Mesh: mesh, PolicyFor: policy.NewTable(nil).For, ListenAddr: "127.0.0.1:0", Poller: testPoller, CPUs: []int{1<<10 - 1}, Limits: usual(Limits{})}); err != nil {
		t.Fatal(err)
	} else if err := l.Start(t.Context()); err == nil {
		t.Fatal("a loop runs on a CPU that is not there")
	} else {
		_ = l.poller.Close()
	}
}

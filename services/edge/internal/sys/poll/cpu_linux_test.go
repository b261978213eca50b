package poll

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPinKeepsAThreadOnOneCPU(t *testing.T) {
	cpus, err := CPUs()
	if err != nil || len(cpus) == 0 || !slices.IsSorted(cpus) {
		t.Fatalf("CPUs %v, %v", cpus, err)
	}
	for _, cpu := range cpus {
		type result struct {
			only bool
			err  error
		}
		done := make(chan result)
		go func() {
			undo, err := Pin(cpu)
			if err != nil {
				done <- result{err: err}
				return
			}
			var set unix.CPUSet
			err = unix.SchedGetaffinity(0, &set)
			only := set.Count() == 1 && set.IsSet(cpu)
			undo()
			done <- result{only, err}
		}()
		if r := <-done; r.err != nil || !r.only {
			t.Fatalf("CPU %d: %+v", cpu, r)
		}
	}
	if again, err := CPUs(); err != nil || !slices.Equal(again, cpus) {
		t.Fatalf("the process may run on %v, %v", again, err)
	}
	if _, err := Pin(1<<10 - 1); err == nil {
		t.Fatal("pinned to a CPU that is not there")
	}
}

package procfs

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestCPUGrowsWithWork(t *testing.T) {
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; {
		after, err := CPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after-before > 10*time.Millisecond {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("two busy minutes, and only %v of CPU", after-before)
		}
	}
}

func TestRSSShowsPagesInUse(t *testing.T) {
	before, err := RSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// Not of Go's heap, which may have pages in use that hold nothing.
	b, err := syscall.Mmap(-1, 0, 64<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(b) }()
	for i := 0; i < len(b); i += 1024 {
		b[i] = 1
	}
	after, err := RSS(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after - before; grown < 32<<20 {
		t.Fatalf("64 MiB more, and RSS grew by %d", grown)
	}
}

func TestMachine(t *testing.T) {
	free, err := Available()
	if err != nil || free < 1<<20 {
		t.Fatalf("available: %d, %v", free, err)
	}
	kernel, err := Kernel()
	if err != nil || kernel < 1<<20 {
		t.Fatalf("kernel: %d, %v", kernel, err)
	}
}

func TestNonsense(t *testing.T) {
	if _, err := CPU(1 << 30); err == nil {
		t.Error("a process that isn't there ran")
	}
	if _, err := RSS(1 << 30); err == nil {
		t.Error("a process that isn't there has memory")
	}
	if _, err := ran([]byte("x 1 2")); err == nil {
		t.Error("nonsense was taken for a schedstat")
	}
	if d, err := ran([]byte("1500 2 3\n")); err != nil || d != 1500 {
		t.Errorf("got %v, %v", d, err)
	}
}

package ports

import "testing"

func TestPortsAreDistinctAndFree(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		port, err := Port()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("%d was given twice", port)
		}
		seen[port] = true
		l, err := listen(port)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
	}
}

// Two processes are two leases.
func TestNoTwoLeasesShareAPort(t *testing.T) {
	var a, b lease
	seen := map[int]bool{}
	for _, l := range []*lease{&a, &b} {
		for range size - 1 {
			port, err := l.port()
			if err != nil {
				t.Fatal(err)
			}
			if seen[port] {
				t.Fatalf("%d was given twice", port)
			}
			seen[port] = true
		}
		defer func() { _ = l.guard.Close() }()
	}
}

func TestAStoppedServersPortIsNotGivenAway(t *testing.T) {
	port, err := Port()
	if err != nil {
		t.Fatal(err)
	}
	for range size / 2 { // nobody listens on any of them
		other, err := Port()
		if err != nil {
			t.Fatal(err)
		}
		if other == port {
			t.Fatalf("%d was given twice", port)
		}
	}
}

package edge

import "testing"

func TestMailboxBenchmarkIsRead(t *testing.T) {
	const said = "BenchmarkThroughput/8_senders-2 \t 2000000\t        97.36 ns/op\t        10.27 M-items/s\t       0 B/op\t       0 allocs/op\n"
	found := throughput.FindAllStringSubmatch(said, -1)
	if len(found) != 1 || found[0][1] != "8" || found[0][2] != "10.27" {
		t.Fatalf("got %q", found)
	}
}

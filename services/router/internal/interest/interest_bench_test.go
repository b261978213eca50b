package interest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
)

// benchTopics is PUSHMESH_INTEREST_TOPICS, or few enough for a benchmark that runs beside others.
func benchTopics(b *testing.B) int {
	n := 1_000_000
	if s := os.Getenv("PUSHMESH_INTEREST_TOPICS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

func inbox(dst []byte, n int) []byte {
	dst = append(dst, "user/"...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, "/inbox"...)
}

// fill announces topics from..to for an edge, 500 at a time, as edges do.
func fill(t *Table, edge string, version *uint64, from, to int) {
	var events []Event
	for ; from < to; from += 500 {
		*version++
		a := &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: 1, Version: *version}
		for n := from; n < min(from+500, to); n++ {
			a.Add = append(a.Add, string(inbox(nil, n)))
		}
		t.Announce(zero, a)
		events = t.Take(events[:0])
	}
}

// resident is the process's memory in bytes.
func resident(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("no /proc here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(status))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages * os.Getpagesize())
}

func BenchmarkMemory(b *testing.B) {
	topics := benchTopics(b)
	for _, c := range []struct {
		name  string
		pairs int
		fill  func(*Table)
	}{
		{"half_each", topics, func(t *Table) {
			var v, w uint64
			fill(t, "a", &v, 0, topics/2)
			fill(t, "b", &w, topics/2, topics)
		}},
		{"both", 2 * topics, func(t *Table) {
			var v, w uint64
			fill(t, "a", &v, 0, topics)
			fill(t, "b", &w, 0, topics)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				runtime.GC()
				before, rss := heap(), resident(b)
				table := &Table{}
				began := time.Now()
				c.fill(table)
				took := time.Since(began)
				grown := resident(b) - rss
				b.ReportMetric(float64(heap()-before)/float64(c.pairs), "heap-B/entry")
				b.ReportMetric(grown/float64(c.pairs), "rss-B/entry")
				b.ReportMetric(float64(c.pairs)/took.Seconds(), "filled/s")
				runtime.KeepAlive(table)
			}
		})
	}
}

// BenchmarkInterest is what a full table does: a topic's lookup, alone and beside announcements,
// and those.
func BenchmarkInterest(b *testing.B) {
	topics := benchTopics(b)
	table := &Table{}
	var versions [2]uint64
	fill(table, "a", &versions[0], 0, topics/2)
	fill(table, "b", &versions[1], topics/2, topics)
	runtime.GC()
	names := make([]string, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range names {
		names[i] = string(inbox(nil, rnd.IntN(topics)))
	}
	b.Run("lookup", func(b *testing.B) { lookups(b, table, names, 1) })
	b.Run("lookup_miss", func(b *testing.B) {
		none := slices.Clone(names[:1<<18])
		for i := range none {
			none[i] += "/x"
		}
		lookups(b, table, none, 0)
	})
	b.Run("lookup_beside_announcing", func(b *testing.B) {
		stop, ended := make(chan struct{}), make(chan int)
		began := time.Now()
		go func() { ended <- churn(table, "a", &versions[0], topics, stop) }()
		lookups(b, table, names, 1)
		close(stop)
		b.ReportMetric(float64(<-ended)/time.Since(began).Seconds(), "announced/s")
	})
	b.Run("apply", func(b *testing.B) {
		b.ReportAllocs()
		n := 0
		var events []Event
		a := &meshv1.EdgeAnnounce{EdgeId: "a", EdgeIncarnation: 1}
		for b.Loop() {
			if n%1000 == 0 { // the same 500 once more and once less
				a.Add, a.Remove = freshNames(n, 500), nil
			} else {
				a.Add, a.Remove = nil, a.Add
			}
			versions[0]++
			a.Version = versions[0]
			table.Announce(zero, a)
			events = table.Take(events[:0])
			n += 500
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "announced/s")
	})
	b.Run("apply_decoded", func(b *testing.B) {
		b.ReportAllocs()
		const batch = 4096
		messages := make([][]byte, batch)
		var events []Event
		n := 0
		for b.Loop() {
			if n%batch == 0 {
				b.StopTimer()
				messages = encodeOnes(messages, "b", versions[1], n, topics)
				b.StartTimer()
			}
			var a meshv1.EdgeAnnounce
			if err := proto.Unmarshal(messages[n%batch], &a); err != nil {
				b.Fatal(err)
			}
			table.Meet(zero, a.GetEdgeId(), a.GetEdgeIncarnation())
			table.Announce(zero, &a)
			events = table.Take(events[:0])
			versions[1]++
			n++
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "announced/s")
	})
}

func encodeOnes(messages [][]byte, edge string, version uint64, n, topics int) [][]byte {
	for i := range messages {
		a := &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: 1, Version: version + uint64(i) + 1}
		if name := fmt.Sprintf("room/%d/chat", (n+i)/2%topics); i%2 == 0 {
			a.Add = []string{name}
		} else {
			a.Remove = []string{name}
		}
		messages[i], _ = proto.Marshal(a)
	}
	return messages
}

func freshNames(from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "room/" + strconv.Itoa((from+i)*7919) + "/chat"
	}
	return list
}

func lookups(b *testing.B, table *Table, names []string, want int) {
	b.ReportAllocs()
	var dst []*Peer
	found, n := 0, 0
	for b.Loop() {
		dst = table.Lookup(dst[:0], names[n&(len(names)-1)])
		found += len(dst)
		n++
	}
	if found != n*want {
		b.Fatalf("%d edges in %d lookups", found, n)
	}
}

// churn adds and removes topics beside those that are there until it is stopped, a million a second
// where the machine bears it, and says how many.
func churn(table *Table, edge string, version *uint64, topics int, stop <-chan struct{}) (n int) {
	const perSecond = 1_000_000
	rnd := rand.New(rand.NewPCG(3, 4))
	names := freshNames(0, 1<<16)
	var events []Event
	a := &meshv1.EdgeAnnounce{EdgeId: edge, EdgeIncarnation: 1}
	for began := time.Now(); ; {
		select {
		case <-stop:
			return n
		default:
		}
		if time.Since(began)*perSecond < time.Duration(n)*time.Second {
			runtime.Gosched()
			continue
		}
		at := rnd.IntN(len(names) - 64)
		a.Add, a.Remove = names[at:at+64], nil
		for range 2 {
			*version++
			a.Version = *version
			table.Announce(zero, a)
			events = table.Take(events[:0])
			a.Add, a.Remove = nil, a.Add
		}
		n += 128
	}
}

// BenchmarkSnapshot is a new router's: every topic in parts of two edges' snapshots, decoded, while
// another goroutine looks topics up.
func BenchmarkSnapshot(b *testing.B) {
	topics := benchTopics(b)
	const perPart = 12_000
	parts := map[string][][]byte{}
	count := (topics/2 + perPart - 1) / perPart
	for k, edge := range []string{"a", "b"} {
		for part := range count {
			s := &meshv1.EdgeSnapshot{EdgeId: edge, EdgeIncarnation: 1, Version: 2, Part: uint32(part), Parts: uint32(count)}
			for n := part * perPart; n < min((part+1)*perPart, topics/2); n++ {
				s.Filters = append(s.Filters, string(inbox(nil, k*topics/2+n)))
			}
			data, err := proto.Marshal(s)
			if err != nil {
				b.Fatal(err)
			}
			parts[edge] = append(parts[edge], data)
		}
	}
	for b.Loop() {
		table := &Table{}
		for edge := range parts {
			table.Digest(zero, &meshv1.EdgeDigest{EdgeId: edge, EdgeIncarnation: 1, Version: 2, Count: 1})
		}
		stop, waits := make(chan struct{}), make(chan []time.Duration)
		go func() { waits <- timeLookups(table, topics, stop) }()
		began := time.Now()
		for part := range count {
			for edge := range parts {
				var s meshv1.EdgeSnapshot
				if err := proto.Unmarshal(parts[edge][part], &s); err != nil {
					b.Fatal(err)
				}
				table.Snapshot(zero, &s)
			}
		}
		took := time.Since(began)
		close(stop)
		slowest := <-waits
		if got := table.Stats().Entries; got != topics {
			b.Fatalf("%d entries", got)
		}
		b.ReportMetric(float64(topics)/took.Seconds(), "taken/s")
		b.ReportMetric(float64(slowest[len(slowest)-1].Microseconds()), "max-µs")
		b.ReportMetric(float64(slowest[len(slowest)*9999/10000].Nanoseconds())/1000, "p99.99-µs")
	}
}

// timeLookups times lookups until it is stopped, and sorts what they took.
func timeLookups(table *Table, topics int, stop <-chan struct{}) []time.Duration {
	rnd := rand.New(rand.NewPCG(7, 8))
	took := make([]time.Duration, 0, 1<<24)
	var dst []*Peer
	var name []byte
	for len(took) < cap(took) {
		select {
		case <-stop:
			slices.Sort(took)
			return took
		default:
		}
		name = inbox(name[:0], rnd.IntN(topics))
		topic := string(name)
		began := time.Now()
		dst = table.Lookup(dst[:0], topic)
		took = append(took, time.Since(began))
	}
	<-stop
	slices.Sort(took)
	return took
}

// BenchmarkWildcards matches topics against a million filters.
func BenchmarkWildcards(b *testing.B) {
	const filters = 1_000_000
	table := &Table{}
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, edge := range []string{"a", "b"} {
		a := announcement(edge, nil)
		for n := range filters / 2 {
			u := strconv.Itoa(rnd.IntN(filters))
			a.Add = append(a.Add, [...]string{
				"user/" + u + "/#",
				"user/" + u + "/+",
				"room/" + u + "/+/typing",
				"+/" + u + "/status",
				"app/" + strconv.Itoa(n%100) + "/+/" + u + "/#",
			}[n%5])
		}
		table.Announce(zero, a)
	}
	table.Take(nil)
	names := func(make func(u string) string) []string {
		list := slices.Repeat([]string{""}, 1<<18)
		for i := range list {
			list[i] = make(strconv.Itoa(rnd.IntN(filters)))
		}
		return list
	}
	run := func(name string, list []string) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []*Peer
			n, found := 0, 0
			for b.Loop() {
				dst = table.Lookup(dst[:0], list[n%len(list)])
				found += len(dst)
				n++
			}
			b.ReportMetric(float64(found)/float64(n), "edges/op")
		})
	}
	run("hit", names(func(u string) string { return "user/" + u + "/inbox" }))
	run("deep", names(func(u string) string { return "app/" + u[:min(2, len(u))] + "/eu/" + u + "/orders/new" }))
	run("miss", names(func(u string) string { return "none/" + u + "/of/these" }))
	evil := announcement("evil", hostile(18))
	table.Announce(zero, evil)
	table.Take(nil)
	run("hostile", []string{strings.Repeat("a/", 18) + "a"})
}

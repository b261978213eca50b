package eventring

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/events"
)

func TestRecordsComeOutAsTheyWentIn(t *testing.T) {
	wakes := 0
	r := New(func() { wakes++ })
	r.Open()
	all := []Record{
		{Kind: events.Connect, Flag: true, At: 1, Conn: 1<<63 | 5, ClientID: "ann-1", User: "ann", Session: "phone"},
		{Kind: events.Disconnect, Code: 15, At: 2, Conn: 7, Backend: true, Reason: strings.Repeat("x", 300)},
		{Kind: events.Delivered, At: 3, Conn: 7, Epoch: 9, Seq: 1 << 60, Name: strings.Repeat("ä", 127), Group: "g"},
	}
	for lap := range 3 * Size / 400 { // several times around
		for i := range all {
			r.Put(&all[i])
		}
		for _, want := range all {
			want.Reason = want.Reason[:min(len(want.Reason), maxText)]
			if got, ok := r.Take(); !ok || got != want {
				t.Fatalf("lap %d: got %+v, want %+v", lap, got, want)
			}
		}
		if _, ok := r.Take(); ok || wakes != lap+1 {
			t.Fatalf("lap %d: something is left, or %d wakes", lap, wakes)
		}
	}
}

func TestWhatFindsNoRoomIsCounted(t *testing.T) {
	r := New(func() {})
	r.Open()
	n := 0
	for ; r.Lost(events.Connect) == 0; n++ {
		r.Put(&Record{Kind: events.Connect, ClientID: fmt.Sprint(n)})
	}
	for i := range n - 1 {
		if got, ok := r.Take(); !ok || got.ClientID != fmt.Sprint(i) {
			t.Fatalf("%d: %+v %v", i, got, ok)
		}
	}
	if _, ok := r.Take(); ok || r.Lost(events.Disconnect) != 0 {
		t.Fatal("more than was put")
	}
	r.Put(&Record{Kind: events.Disconnect})
	if got, ok := r.Take(); !ok || got.Kind != events.Disconnect {
		t.Fatal("no room after all was taken")
	}
}

// Two goroutines, one that puts and one that takes: the reader is woken whenever it may sleep.
func TestReaderIsWoken(t *testing.T) {
	wake := make(chan struct{}, 1)
	r := New(func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	r.Open()
	const n = 20_000
	done := make(chan string)
	go func() {
		for next := uint64(0); next < n; {
			e, ok := r.Take()
			switch {
			case !ok:
				<-wake
			case e.Seq != next:
				done <- fmt.Sprintf("got %d, want %d", e.Seq, next)
				return
			default:
				next++
			}
		}
		done <- ""
	}()
	for i := uint64(0); i < n; {
		lost := r.Lost(events.Delivered)
		r.Put(&Record{Kind: events.Delivered, Seq: i, Name: "room/1"})
		if r.Lost(events.Delivered) == lost {
			i++
		}
	}
	if got := <-done; got != "" {
		t.Fatal(got)
	}
}

func TestPutAllocatesNothing(t *testing.T) {
	r := New(func() {})
	r.Open()
	e := &Record{Kind: events.Disconnect, ClientID: "client-0001", Reason: "the edge is stopping"}
	if n := testing.AllocsPerRun(100_000, func() { r.Put(e) }); n != 0 { // the ring is full halfway
		t.Fatalf("%v allocations", n)
	}
	if r.Lost(events.Disconnect) == 0 {
		t.Fatal("the ring was never full")
	}
}

func BenchmarkPut(b *testing.B) {
	r := New(func() {})
	r.Open()
	b.ReportAllocs()
	for range b.N {
		r.Put(&Record{Kind: events.Disconnect, ClientID: "client-0001", Reason: "the edge is stopping"})
		r.tail.Store(r.head.Load())
	}
}

package book

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/policy"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

const benchNow = 1e15

// crowd is a book with a resource that one holds and n wait for, each told over a connection of its
// own.
func crowd(n int) *Book {
	rules := &policy.Claims{
		Holders: 1, MaxWaiting: policy.MaxClaimWaiting, TTL: time.Hour, MaxTTL: time.Hour, Grace: time.Hour, WaitTTL: time.Hour, OfferTTL: time.Hour,
	}
	b := New(Config{Rules: func(string) *policy.Claims { return rules }})
	for shard := range topic.Shards {
		b.Load(benchNow, backend.ClaimShard{Shard: shard, Next: 1}, slices.Values([]backend.ClaimPlace(nil)))
	}
	b.NodeUp(benchNow, "edge:1", 1)
	for i := range n + 1 {
		b.Apply(benchNow, opOf(acquire, i))
	}
	b.Take()
	return b
}

func opOf(kind meshv1.ClaimOp_Kind, i int) Op {
	return Op{Node: "edge:1", Incarnation: 1, ClaimOp: &meshv1.ClaimOp{Kind: kind, Resource: "r", Owner: fmt.Sprint("owner-", i), Conn: uint64(i) + 1, Bound: true}}
}

// What an arrival, a departure from the middle, and a hand-over cost must not depend on how many
// wait.
func BenchmarkLine(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("join and leave the end/%d", n), func(b *testing.B) {
			bk := crowd(n)
			b.ReportAllocs()
			join, quit := opOf(acquire, n+1), opOf(leave, n+1)
			for b.Loop() {
				bk.Apply(benchNow, join)
				bk.Apply(benchNow, quit)
				bk.Take()
			}
		})
		b.Run(fmt.Sprintf("leave the middle and join/%d", n), func(b *testing.B) {
			bk := crowd(n)
			b.ReportAllocs()
			ops := [][2]Op{}
			for i := range n {
				ops = append(ops, [2]Op{opOf(leave, i+1), opOf(acquire, i+1)})
			}
			at := n / 2
			for b.Loop() {
				bk.Apply(benchNow, ops[at][0])
				bk.Apply(benchNow, ops[at][1])
				bk.Take()
				at = (at + n/2 + 1) % n
			}
		})
		b.Run(fmt.Sprintf("hand over and join/%d", n), func(b *testing.B) {
			bk := crowd(n)
			b.ReportAllocs()
			var takes, gives []Op
			for i := range n + 1 {
				takes, gives = append(takes, opOf(acquire, i)), append(gives, opOf(release, i))
			}
			holder := 0
			for b.Loop() {
				give := gives[holder]
				give.Token = holderOf(bk)
				bk.Apply(benchNow, give)
				bk.Apply(benchNow, takes[holder])
				bk.Take()
				holder = (holder + 1) % (n + 1)
			}
		})
	}
}

func holderOf(b *Book) uint64 {
	return b.shards[topic.Shard("r")].resources["r"].holds[0].token
}

// holds is a book with n resources that are held, all until another time.
func holds(n int) *Book {
	b := crowd(0)
	for i := range n {
		op := opOf(acquire, i)
		op.Resource, op.Conn, op.TtlMs = fmt.Sprint("resource-", i), 0, 1000+uint32(i)%60_000
		b.Apply(benchNow, op)
		if i%1000 == 0 {
			b.Take()
		}
	}
	b.Take()
	return b
}

// A renewal and its part of what Advance has to do then, with 100,000 holds.
func BenchmarkAdvance(b *testing.B) {
	b.Run("nothing is due", func(b *testing.B) {
		bk := holds(100_000)
		b.ReportAllocs()
		for b.Loop() {
			bk.Advance(benchNow, 1000)
		}
	})
	b.Run("a hold ends", func(b *testing.B) {
		bk := holds(100_000)
		b.ReportAllocs()
		now, i := uint64(benchNow), 0
		for b.Loop() {
			at, _ := bk.Due()
			now = max(now, at)
			bk.Advance(now, 1)
			op := opOf(acquire, i)
			op.Resource, op.Conn, op.TtlMs = fmt.Sprint("resource-", i%100_000), 0, 60_000
			bk.Apply(now, op)
			bk.Take()
			i++
		}
	})
}

// A place needs so much, beyond the strings of its names.
func TestMemory(t *testing.T) {
	const n = 50_000
	for _, c := range []struct {
		name string
		make func() *Book
		most uint64
	}{
		{"who waits with a tie", func() *Book { return crowd(n - 1) }, 300},
		{"a hold, and its resource", func() *Book { return holds(n) }, 450},
	} {
		before := heap()
		b := c.make()
		each := (heap() - before) / n
		strings := uint64(16 + 16) // the names of these
		t.Logf("%s: %d B", c.name, each-strings)
		if each-strings > c.most {
			t.Errorf("%s needs %d B, more than %d", c.name, each-strings, c.most)
		}
		runtime.KeepAlive(b)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

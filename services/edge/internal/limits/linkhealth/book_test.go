package linkhealth

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// exact is the rule as it is written, with everything kept.
type exact struct {
	window []float64
	spikes int
}

func (e *exact) limit() float64 {
	if len(e.window) < few {
		return early
	}
	mean, variance := 0.0, 0.0
	for _, v := range e.window {
		mean += v / float64(len(e.window))
	}
	for _, v := range e.window {
		variance += (v - mean) * (v - mean) / float64(len(e.window))
	}
	return max(mean+3*math.Sqrt(variance), floor)
}

func (e *exact) judge(us uint32) Verdict {
	if float64(us) > e.limit() {
		e.spikes++
		switch {
		case e.spikes < inARow:
			return Spike
		case e.spikes == inARow:
			return Turned
		}
		return StillSick
	}
	e.spikes = 0
	if e.window = append(e.window, float64(us)); len(e.window) > windowSize {
		e.window = e.window[1:]
	}
	return Well
}

func TestQuantumIsWithinAThirtySecond(t *testing.T) {
	last := quantum(0)
	for us := uint32(0); us < 40_000_000; us += 1 + us/1000 {
		q := quantumOf(us)
		if q < last {
			t.Fatalf("%d µs is %d, and less is %d", us, q, last)
		}
		last = q
		if off := math.Abs(float64(q.us()) - float64(us)); us >= 32_000_000 && q == longest || off <= max(float64(us)/32+1, unit/2) {
			continue
		}
		t.Fatalf("%d µs is kept as %d", us, q.us())
	}
	if quantumOf(math.MaxUint32) != longest {
		t.Fatal("the longest is not the longest")
	}
}

// Of links whose round trips are calm nothing is kept, and yet the rule is the one that keeps
// everything.
func TestCalmLinksAreJudgedExactlyWithoutARecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		var l Link
		e := &exact{}
		for _, us := range rapid.SliceOfN(rapid.Uint32Range(1, calm), few, 3*windowSize).Draw(t, "calm") {
			if _, got := b.Judge(&l, us, 0); got != e.judge(us) || got != Well {
				t.Fatalf("%d µs is %v", us, got)
			}
		}
		if b.Taken() != 0 {
			t.Fatal("a record was taken")
		}
		us := rapid.Uint32Range(calm+1, 3*floor).Draw(t, "the first that is not")
		if _, got := b.Judge(&l, us, 0); got != e.judge(us) {
			t.Fatalf("%d µs is %v behind %d calm ones, whose limit is %v", us, got, len(e.window), e.limit())
		}
	})
}

// A link with a record is judged as by the exact rule but for samples within 4 % of the limit,
// which is what quanta cost.
func TestRecordedLinksAreJudgedAsTheRuleSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		var l Link
		e := &exact{}
		b.Judge(&l, early-1, 0) // a record from the beginning
		e.judge(early - 1)
		middle := rapid.Uint32Range(100_000, 3_000_000).Draw(t, "middle")
		for range rapid.IntRange(1, 3*windowSize).Draw(t, "n") {
			us := middle/2 + rapid.Uint32Range(0, 2*middle).Draw(t, "us")
			if math.Abs(float64(us)-e.limit()) < e.limit()*4/100 {
				continue // either may be
			}
			sample, got := b.Judge(&l, us, 0)
			if want := e.judge(us); got != want || sample != us {
				t.Fatalf("%d µs is %d, %v, want %v: the limit is %v", us, sample, got, want, e.limit())
			}
		}
	})
}

// Whatever comes: a record is there while one of the last 64 was not calm, numbers add up, and
// nothing is left of links that end.
func TestRecordsComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		links := make([]Link, 5)
		last := make([][]uint32, len(links)) // samples
		rows := make([]int, len(links))
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			i := rapid.IntRange(0, len(links)-1).Draw(t, "link")
			if rapid.IntRange(0, 99).Draw(t, "ends") == 0 {
				b.Forget(&links[i])
				last[i], rows[i] = nil, 0
				continue
			}
			us := rapid.SampledFrom([]uint32{300, 40_000, calm, calm, calm, calm + 1, 900_000, 5_000_000}).Draw(t, "us")
			n := 1
			if us <= calm {
				n = rapid.IntRange(1, windowSize).Draw(t, "times")
			}
			for range n {
				_, v := b.Judge(&links[i], us, 0)
				rows[i]++
				if v == Well {
					rows[i] = 0
				}
				if v.Unhealthy() != (rows[i] >= inARow) || (v == Turned) != (rows[i] == inARow) {
					t.Fatalf("%v with %d spikes in a row", v, rows[i])
				}
				if last[i] = append(last[i], us); len(last[i]) > windowSize {
					last[i] = last[i][1:]
				}
			}
			want, sick := 0, 0
			for k := range links {
				restless := false
				for _, us := range last[k] {
					restless = restless || us > calm
				}
				if restless {
					want++
				}
				if rows[k] >= inARow {
					sick++
				}
				if (links[k]&recorded != 0) != restless {
					t.Fatalf("link %d has a record: %v, its last are %v", k, !restless, last[k])
				}
			}
			if b.Taken() != want || b.Unhealthy() != sick {
				t.Fatalf("%d records and %d unhealthy, want %d and %d", b.Taken(), b.Unhealthy(), want, sick)
			}
		}
		for i := range links {
			b.Forget(&links[i])
		}
		if b.Taken() != 0 || b.Unhealthy() != 0 || b.records.Len() > len(links) {
			t.Fatalf("%d records are left, %d unhealthy, of %d", b.Taken(), b.Unhealthy(), b.records.Len())
		}
	})
}

// smoother is the kernel's estimate: an eighth of each round trip.
type smoother uint32

func (s *smoother) add(us uint32) uint32 {
	if *s == 0 {
		*s = smoother(us)
	} else {
		*s = smoother((7*uint64(*s) + uint64(us)) / 8)
	}
	return uint32(*s)
}

// The tail that one long round trip leaves in the kernel's estimate is not taken for round trips
// that were long.
func TestTheKernelsTailIsNoSpike(t *testing.T) {
	var b Book
	var l Link
	var kernel smoother
	for range windowSize {
		b.Judge(&l, 0, kernel.add(50_000))
	}
	if sample, v := b.Judge(&l, 0, kernel.add(20_000_000)); v != Spike || sample != uint32(kernel) {
		t.Fatalf("%d µs, %v", sample, v)
	}
	for i := range 20 {
		smoothed := kernel.add(50_000)
		if sample, v := b.Judge(&l, 0, smoothed); v != Well || sample > 60_000 {
			t.Fatalf("heartbeat %d behind it: %d µs, %v; the kernel says %d", i, sample, v, smoothed)
		}
	}
	for i := range 10 { // and a link that is ill for good is seen without a report
		if _, v := b.Judge(&l, 0, kernel.add(5_000_000)); v == Turned {
			if i > 4 {
				t.Fatalf("unhealthy with heartbeat %d", i)
			}
			return
		}
	}
	t.Fatal("never unhealthy")
}

func TestClientsCantHideWhatTheKernelSees(t *testing.T) {
	var b Book
	var l Link
	for i, want := range []Verdict{Spike, Spike, Turned, StillSick} {
		if sample, v := b.Judge(&l, 1, 3_000_000); v != want || sample != 3_000_000 {
			t.Fatalf("heartbeat %d: %d µs, %v", i, sample, v)
		}
	}
	if _, v := b.Judge(&l, 0, 0); v != Unknown || b.Unhealthy() != 1 {
		t.Fatalf("what says nothing is %v", v)
	}
}

func TestQueuedIsKeptWhateverBecomesOfTheLink(t *testing.T) {
	var b Book
	var l Link
	if l.Queued(true) {
		t.Fatal("a new link's answer was queued")
	}
	for _, us := range []uint32{1000, 5_000_000} {
		b.Judge(&l, us, 0)
		if !l.Queued(true) {
			t.Fatalf("forgotten at %d µs", us)
		}
	}
	for range windowSize {
		b.Judge(&l, 1000, 0)
	}
	if b.Taken() != 0 || !l.Queued(false) || l.Queued(false) {
		t.Fatal("it is not what was noted last")
	}
}

// FuzzReports has clients and kernels say anything: the verdict follows the sample, and the book
// stays in order.
func FuzzReports(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		var b Book
		var l Link
		row := 0
		word := func() (v uint32) {
			for range 4 {
				v = v<<8 | uint32(data[0])
				data = data[1:]
			}
			return v
		}
		for len(data) >= 8 {
			reported, smoothed := word(), word()
			sample, v := b.Judge(&l, reported, smoothed)
			switch {
			case (v == Unknown) != (reported == 0 && smoothed == 0), sample > max(reported, smoothed, 1), v > Well && sample <= floor:
				t.Fatalf("%d and %d are %d, %v", reported, smoothed, sample, v)
			case v == Well:
				row = 0
			case v != Unknown:
				row++
			}
			if v.Unhealthy() != (row >= inARow && v != Unknown) || b.Taken() > 1 || b.Unhealthy() > b.Taken() || (b.Unhealthy() == 1) != (row >= inARow) {
				t.Fatalf("%v with %d in a row, %d records, %d unhealthy", v, row, b.Taken(), b.Unhealthy())
			}
		}
		b.Forget(&l)
		if b.Taken() != 0 || b.Unhealthy() != 0 || l != 0 {
			t.Fatal("something is left")
		}
	})
}

func BenchmarkJudge(b *testing.B) {
	b.Run("calm", func(b *testing.B) {
		var book Book
		var l Link
		for b.Loop() {
			book.Judge(&l, 40_000, 30_000)
		}
	})
	b.Run("recorded", func(b *testing.B) {
		var book Book
		var l Link
		for b.Loop() {
			book.Judge(&l, 500_000, 450_000)
		}
	})
}

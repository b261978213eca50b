package router

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// round is what one second of unary publishing at an even pace came to.
type round struct {
	ok, refused []time.Duration
	err         error
}

func (m *mesh) pace(ctx context.Context, producer string, perSecond int) (r round) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+producer)
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for range perSecond {
		wg.Go(func() {
			began := time.Now()
			_, err := m.pub.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/1", Payload: []byte("x")})
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			e := code.From(err)
			switch {
			case err == nil:
				r.ok = append(r.ok, took)
			case e.Code == wirev1.Code_CODE_RATE_LIMITED && e.RetryAfter > 0 && status.Code(err) == codes.ResourceExhausted:
				r.refused = append(r.refused, took)
			default:
				r.err = err
			}
		})
		<-tick.C
	}
	wg.Wait()
	return r
}

func percentile(ds []time.Duration, p float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[int(p*float64(len(ds)-1))]
}

// overload lets one producer send three times its limit beside another one, and says for how long.
func (m *mesh) overload(tb testing.TB) (alone, greedy, modest round, took time.Duration, err error) {
	tb.Helper()
	alone = m.pace(tb.Context(), "modest", 100)
	began := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() { greedy = m.pace(tb.Context(), "greedy", 3*overloadRate) })
	wg.Go(func() { modest = m.pace(tb.Context(), "modest", 100) })
	wg.Wait()
	return alone, greedy, modest, time.Since(began), cmp.Or(alone.err, greedy.err, modest.err)
}

const overloadRate = 200

func overloaded(s *Settings) { s.ProducerRate, s.ProducerInFlight = overloadRate, 50 }

// A producer at three times its limit gets its limit and refusals that say when to come back;
// another one is not refused. How long that takes is the benchmark's matter: this test holds on a
// machine that is busy with others.
func TestOverloadOfOneProducer(t *testing.T) {
	m := startMesh(t, overloaded)
	for try := 1; ; try++ {
		alone, greedy, modest, took, err := m.overload(t)
		most := int(overloadRate*took.Seconds()) + overloadRate/10 + 1
		if len(greedy.ok) > most || err == nil && len(greedy.ok)+len(greedy.refused) != 3*overloadRate {
			t.Errorf("greedy: %d taken in %v, at most %d; %d refused", len(greedy.ok), took, most, len(greedy.refused))
		}
		refused := len(modest.refused) + len(alone.refused)
		if refused == 0 && err == nil {
			return
		}
		// A core that stood still lets go all at once of what was paced, and a tenth of a second's
		// limit is all that may come at once; a machine that stood still for seconds makes the
		// store seem to be gone.
		if err != nil && !refusedForNow(err) || try == 8 {
			t.Fatalf("the other: %d refused, and some at every try; %v", refused, err)
		}
		m.ready(t)
	}
}

// BenchmarkOverload says how fast refusals are and what they cost the other producer.
func BenchmarkOverload(b *testing.B) {
	m := startMesh(b, overloaded)
	var refusals, before, beside []time.Duration
	for b.Loop() {
		alone, greedy, modest, _, err := m.overload(b)
		if err != nil {
			b.Fatal(err)
		}
		refusals = append(refusals, greedy.refused...)
		before, beside = append(before, alone.ok...), append(beside, modest.ok...)
	}
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	b.ReportMetric(ms(percentile(refusals, 0.99)), "refusal-p99-ms")
	b.ReportMetric(ms(percentile(before, 0.99)), "alone-p99-ms")
	b.ReportMetric(ms(percentile(beside, 0.99)), "beside-p99-ms")
}

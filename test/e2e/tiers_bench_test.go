package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// BenchmarkDurablePublishBetweenTiers publishes durable messages of 256 bytes through a mesh whose
// tiers know each other by certificates and through one in plain text, in turns, and tells the
// median of the rounds' ratios: `go test ./test/e2e -run ^$ -bench BetweenTiers -benchtime 1x`.
func BenchmarkDurablePublishBetweenTiers(b *testing.B) {
	const (
		publishers = 16
		batch      = 32
		span       = 3 * time.Second
		rounds     = 7
	)
	meshes := map[bool]*procmesh.Mesh{}
	for _, secure := range []bool{false, true} {
		meshes[secure] = procmesh.Start(b, procmesh.Options{DB: pgtest.URL(b), TLS: secure})
		meshes[secure].Namespace(b, "stop", &pushmeshv1.Policy{Durable: true})
	}
	round := func(m *procmesh.Mesh) float64 {
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		counts, errs := make([]int, publishers), make([]error, publishers)
		began := time.Now()
		for i := range publishers {
			all.Go(func() {
				p, err := publisher.New(ctx, m.RouterAddrs[0], fmt.Sprint("stop/", i), 256)
				if err != nil {
					errs[i] = err
					return
				}
				defer func() { _ = p.Close() }()
				for time.Since(began) < span && errs[i] == nil {
					if errs[i] = p.Publish(batch); errs[i] == nil {
						errs[i] = p.Wait(ctx)
					}
					counts[i] += batch
				}
			})
		}
		all.Wait()
		sum := 0
		for i, n := range counts {
			if errs[i] != nil {
				b.Fatal(errs[i])
			}
			sum += n
		}
		return float64(sum) / time.Since(began).Seconds()
	}
	for _, m := range meshes { // the first round of each warms up
		round(m)
	}
	for range b.N {
		var ratios, plain, secure []float64
		for range rounds {
			p, s := round(meshes[false]), round(meshes[true])
			ratios, plain, secure = append(ratios, s/p), append(plain, p), append(secure, s)
		}
		for _, all := range [][]float64{ratios, plain, secure} {
			slices.Sort(all)
		}
		b.ReportMetric(ratios[rounds/2], "×-of-plain")
		b.ReportMetric(plain[rounds/2], "plain/s")
		b.ReportMetric(secure[rounds/2], "tls/s")
	}
}

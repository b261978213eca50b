package expr

import (
	"strings"
	"testing"
)

const usual = `features.quality * 2.0 + features.fresh * profile.fresh - age / 3600.0 + (headers.lang == "en" ? 0.5 : 0.0)`

// BenchmarkScore is a candidate by the usual expression: compiled, and as cel-go interprets it.
func BenchmarkScore(b *testing.B) {
	p, err := Compile(usual, Score, Limits{})
	if err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]*Program{"compiled": p, "interpreted": interpreted(b, p)} {
		b.Run(name, func(b *testing.B) {
			in, ctx := sample(), b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if r, err := q.Eval(ctx, in); r.Undefined || err != nil {
					b.Fatal(r, err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "candidates/s")
		})
	}
}

// BenchmarkFilter is a message by usual filters, its payload parsed before.
func BenchmarkFilter(b *testing.B) {
	for _, text := range []string{`headers.lang == "en" && priority >= 3`, `payload.price > 10 && payload.kind in ["book", "film"]`} {
		p, err := Compile(text, Filter, Limits{})
		if err != nil {
			b.Fatal(err)
		}
		for name, q := range map[string]*Program{"compiled": p, "interpreted": interpreted(b, p)} {
			b.Run(name, func(b *testing.B) {
				in, ctx := sample(), b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if r, err := q.Eval(ctx, in); !r.Bool || err != nil {
						b.Fatal(r, err)
					}
				}
			})
		}
	}
}

// BenchmarkUnit is what EstimatedTime multiplies by: ns of a unit of cost.
func BenchmarkUnit(b *testing.B) {
	sum := "features.quality" + strings.Repeat(" + features.fresh * profile.fresh", 30)
	for _, c := range []struct {
		name, text string
		kind       Kind
		compiled   bool
	}{{"compiled", sum, Score, true}, {"interpreted", sum, Score, false}, {"loop", `payload.tags.map(a, payload.tags.map(b, a)).size() > 0`, Filter, false}} {
		b.Run(c.name, func(b *testing.B) {
			p, err := Compile(c.text, c.kind, Limits{})
			if err != nil {
				b.Fatal(err)
			}
			if !c.compiled {
				p = interpreted(b, p)
			}
			in, ctx, cost := sample(), b.Context(), uint64(0)
			in.SetPayload([]byte(`{"tags":[` + strings.Repeat(`"tag",`, 19) + `"last"]}`))
			for b.Loop() {
				r, err := p.Eval(ctx, in)
				if err != nil {
					b.Fatal(err)
				}
				cost += r.Cost
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(cost), "ns/unit")
		})
	}
}

// BenchmarkPayload parses a payload of 1 KiB.
func BenchmarkPayload(b *testing.B) {
	payload := []byte(`{"price":12.5,"items":[` + strings.Repeat(`{"id":1234,"name":"a name of usual length","ok":true},`, 18) + `null]}`)
	in := &Input{}
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		in.SetPayload(payload)
		if len(in.document().nodes) == 0 {
			b.Fatal("no JSON")
		}
	}
}

// BenchmarkCompile makes a program of a text.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(usual, Score, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

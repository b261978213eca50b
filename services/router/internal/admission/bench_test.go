package admission

import (
	"testing"
	"time"
)

func BenchmarkAdmit(b *testing.B) {
	a := New(Config{Producer: Limits{Rate: 1 << 30, InFlight: 1000}, Overall: Limits{Rate: 1 << 30, InFlight: 1000}})
	b.ReportAllocs()
	for b.Loop() {
		s, err := a.Admit(time.Now(), ask("host:127.0.0.1", nil, 1))
		if err != nil {
			b.Fatal(err)
		}
		s.Release()
	}
}

// A refusal is what an overload consists of: it must stay cheap.
func BenchmarkRefuse(b *testing.B) {
	a := New(Config{Producer: Limits{Rate: 1}})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.Admit(start, ask("host:127.0.0.1", nil, 1))
	}
}

func BenchmarkShed(b *testing.B) {
	a := New(Config{Producer: Limits{Rate: 1 << 30, InFlight: 1000}, Store: func(string, uint32) (float64, bool) { return 0.7, false }})
	b.ReportAllocs()
	for b.Loop() {
		_, _ = a.Admit(start, Ask{Producer: "host:127.0.0.1", Topic: "room/1", Durable: true, Messages: 1, Bytes: 1000})
	}
}

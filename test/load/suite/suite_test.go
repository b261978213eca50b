package suite

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
	"time"
)

func suiteOf(int *int) *Suite {
	return &Suite{
		Rounds: 3, Span: time.Second, Timeout: time.Minute,
		Flags: func(f *flag.FlagSet) { f.IntVar(int, "conns", 1, "") },
		Check: func() error {
			if *int < 1 {
				return errors.New("-conns is 1 at least")
			}
			return nil
		},
	}
}

func TestFlags(t *testing.T) {
	conns := 0
	s := suiteOf(&conns)
	for _, args := range [][]string{{"-conns", "0"}, {"-rounds", "0"}, {"-span", "0s"}, {"-only", "("}, {"-nonsense"}} {
		if _, err := s.parse(&Run{}, "test", args); err == nil {
			t.Errorf("%v were accepted", args)
		}
	}
	r := &Run{}
	o, err := s.parse(r, "test", []string{"-only", "idle,latency", "-span", "2s"})
	if err != nil || !o.only.MatchString("latency") || o.only.MatchString("delivery") || r.Span != 2*time.Second || r.Rounds != 3 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWhatFailedIsARow(t *testing.T) {
	o, err := suiteOf(new(int)).parse(&Run{}, "test", []string{"-only", "bad|good", "-conns", "2"})
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{}
	ran := ""
	r.parts(t.Context(), o.only, []Part{
		{"bad", func(context.Context) error { ran += "b"; return errors.New("broken") }},
		{"good", func(context.Context) error { ran += "g"; return nil }},
		{"other", func(context.Context) error { ran += "o"; return nil }},
	})
	if all := r.Rows(); ran != "bg" || len(all) != 1 || *all[0].Met || !strings.Contains(all[0].Reference, "broken") {
		t.Errorf("%q ran: %v", ran, all)
	}
}

func TestAWorkerObeysUntilOrdersEnd(t *testing.T) {
	work := func(_ context.Context, arg []byte, orders <-chan string, say func(any) error) error {
		for order := range orders {
			if err := say(string(arg) + order); err != nil {
				return err
			}
		}
		return nil
	}
	var said strings.Builder
	if err := Obey(t.Context(), work, "7", "", strings.NewReader("a\nb\n"), &said); err != nil || said.String() != "\"7a\"\n\"7b\"\n" {
		t.Errorf("said %q, %v", said.String(), err)
	}
	if err := Obey(t.Context(), work, "", t.TempDir()+"/none/profile", strings.NewReader(""), io.Discard); err == nil {
		t.Error("a profile went nowhere")
	}
}

func TestUsageNamesEverybody(t *testing.T) {
	u, err := Using(Self("program"), Consumer{Postgres, []int{1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := u.Each(10); err != nil || !strings.HasPrefix(said, "CPU µs each: program ") || !strings.Contains(said, "+ postgres 0.00 = ") {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := Using(Consumer{"gone", []int{1 << 30}}); err == nil {
		t.Error("a process that is not there was measured")
	}
}

func TestBenchmarksAreRead(t *testing.T) {
	const line = "BenchmarkThroughput/8_senders-2 \t 2000000\t        97.36 ns/op\t        10.27 M-items/s\t       0 B/op\n"
	got := benchmarks("goos: linux\n" + line + line + "PASS\n")
	if v := got["Throughput/8_senders"]["M-items/s"]; len(got) != 1 || len(v) != 2 || v[1] != 10.27 {
		t.Errorf("got %v", got)
	}
}

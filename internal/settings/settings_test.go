package settings

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/bus"
)

type sample struct {
	Listen string `default:":1"`
	Size   int    `default:"5" help:"How many."`
	Level  string `default:"low" enum:"low,high"`
}

func (s *sample) Check() error {
	return errors.Join(Addr("listen", s.Listen), Range("size", s.Size, 1, 10))
}

func TestParseReportsEveryFault(t *testing.T) {
	var s sample
	err := Parse(&s, "x", "does x", []string{"--listen", "nowhere", "--size", "11"}, &bytes.Buffer{})
	if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "--listen") || !strings.Contains(err.Error(), "--size is 11") {
		t.Fatalf("got %v", err)
	}
}

// What the parser itself finds doesn't hide the rest.
func TestParseReportsChoicesAndTheRest(t *testing.T) {
	var s sample
	err := Parse(&s, "x", "does x", []string{"--level", "loud", "--listen", "nowhere", "--size", "11"}, &bytes.Buffer{})
	for _, want := range []string{"--level", "--listen", "--size is 11"} {
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing from %v", want, err)
		}
	}
	if err := Parse(&s, "x", "does x", []string{"--size", "many"}, &bytes.Buffer{}); ExitCode(err) != ExitUsage || strings.Contains(err.Error(), "--listen") {
		t.Errorf("a value that can't be read: %v", err)
	}
}

func TestRangeRefusesNaN(t *testing.T) {
	if Range("share", math.NaN(), 0, 1) == nil || Range("share", 1.0, 0, 1) != nil {
		t.Error("NaN is in no range, 1 is in 0 to 1")
	}
}

func TestParseTakesVariables(t *testing.T) {
	t.Setenv("PUSHMESH_SIZE", "7")
	var s sample
	if err := Parse(&s, "x", "does x", nil, &bytes.Buffer{}); err != nil || s.Size != 7 || s.Listen != ":1" {
		t.Fatalf("got %+v, %v", s, err)
	}
}

func TestParseHelpAndUnknownFlags(t *testing.T) {
	var s sample
	var out bytes.Buffer
	if err := Parse(&s, "x", "does x", []string{"--help"}, &out); ExitCode(err) != ExitOK || !strings.Contains(out.String(), "How many") {
		t.Fatalf("got %v, %q", err, out.String())
	}
	if err := Parse(&s, "x", "does x", []string{"--nope"}, &out); ExitCode(err) != ExitUsage {
		t.Fatalf("got %v", err)
	}
	if ExitCode(errors.New("x")) != ExitFailure {
		t.Fatal("an error is not a failure")
	}
}

func TestRandomID(t *testing.T) {
	a, b := RandomID("edge"), RandomID("edge")
	if a == b {
		t.Fatal("twice the same id")
	}
	if err := bus.CheckID(a); err != nil {
		t.Fatal(err)
	}
}

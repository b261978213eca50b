package settings

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/bus"
)

type sample struct {
	Listen string `default:":1"`
	Size   int    `default:"5" help:"How many."`
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

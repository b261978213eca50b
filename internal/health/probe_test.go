package health

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestCommandProbes(t *testing.T) {
	var checks Checks
	var broken atomic.Bool
	broken.Store(true)
	checks.Require("nats", func() error {
		if broken.Load() {
			return errors.New("gone")
		}
		return nil
	})
	s := NewServer("127.0.0.1:0", &checks, prometheus.NewRegistry())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	url := "http://" + s.Addr() + "/readyz"

	if asked, err := Command(t.Context(), []string{"--listen", ":0"}); asked || err != nil {
		t.Fatalf("another command: %v, %v", asked, err)
	}
	if asked, err := Command(t.Context(), []string{"health"}); !asked || err == nil {
		t.Fatalf("without a URL: %v, %v", asked, err)
	}
	if asked, err := Command(t.Context(), []string{"health", url + "?verbose"}); !asked || err == nil || !strings.Contains(err.Error(), "nats: missing: gone") {
		t.Fatalf("not ready: %v, %v", asked, err)
	}
	broken.Store(false)
	if asked, err := Command(t.Context(), []string{"health", url}); !asked || err != nil {
		t.Fatalf("ready: %v, %v", asked, err)
	}
	if err := Probe(t.Context(), "http://127.0.0.1:1/"); err == nil {
		t.Fatal("nobody is there, and no error")
	}
}

package health

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func serve(t *testing.T, checks *Checks) (url string) {
	t.Helper()
	s := NewServer("127.0.0.1:0", checks, prometheus.NewRegistry())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestReadyzNamesWhatIsMissing(t *testing.T) {
	var checks Checks
	var nats, table error
	checks.Require("table", func() error { return table })
	checks.Report("nats", func() error { return nats })
	url := serve(t, &checks)

	if status, body := get(t, url+"/readyz?verbose"); status != 200 || body != "nats: ok\ntable: ok\nready\n" {
		t.Fatalf("got %d %q", status, body)
	}
	nats = errors.New("not connected")
	if status, body := get(t, url+"/readyz?verbose"); status != 200 || body != "nats: degraded: not connected\ntable: ok\nready\n" {
		t.Fatalf("got %d %q", status, body)
	}
	table = errors.New("two edges unknown")
	if status, body := get(t, url+"/readyz?verbose"); status != 503 || !strings.Contains(body, "table: missing: two edges unknown\n") {
		t.Fatalf("got %d %q", status, body)
	}
	if status, body := get(t, url+"/readyz"); status != 503 || body != "not ready\n" {
		t.Fatalf("got %d %q", status, body)
	}
	if status, body := get(t, url+"/livez"); status != 200 || body != "ok\n" {
		t.Fatalf("got %d %q", status, body)
	}
}

func TestCommandProbes(t *testing.T) {
	var checks Checks
	missing := errors.New("gone")
	checks.Require("nats", func() error { return missing })
	url := serve(t, &checks)

	if asked, err := Command(t.Context(), []string{"--listen", ":0"}); asked || err != nil {
		t.Fatalf("got %v, %v", asked, err)
	}
	if asked, err := Command(t.Context(), []string{"health"}); !asked || err == nil {
		t.Fatalf("without a URL: %v, %v", asked, err)
	}
	if asked, err := Command(t.Context(), []string{"health", url + "/readyz?verbose"}); !asked || err == nil || !strings.Contains(err.Error(), "nats: missing: gone") {
		t.Fatalf("not ready: %v, %v", asked, err)
	}
	missing = nil
	if asked, err := Command(t.Context(), []string{"health", url + "/readyz"}); !asked || err != nil {
		t.Fatalf("ready: %v, %v", asked, err)
	}
	if err := Probe(t.Context(), "http://127.0.0.1:1/"); err == nil {
		t.Fatal("nobody there, and no error")
	}
}

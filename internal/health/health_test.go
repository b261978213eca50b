package health

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

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
	var broken atomic.Bool
	checks.Require("loops", func() error {
		if broken.Load() {
			return errors.New("no turn for 6 s")
		}
		return nil
	})
	checks.Report("nats", func() error { return errors.New("not connected") })
	s := NewServer("127.0.0.1:0", &checks, prometheus.NewRegistry())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	base := "http://" + s.Addr()
	if status, body := get(t, base+"/readyz?verbose"); status != 200 || !strings.Contains(body, "loops: ok\nnats: degraded: not connected\nready") {
		t.Fatalf("%d %q", status, body)
	}
	broken.Store(true)
	if status, body := get(t, base+"/readyz?verbose"); status != 503 || !strings.Contains(body, "loops: missing: no turn for 6 s") {
		t.Fatalf("%d %q", status, body)
	}
	if status, _ := get(t, base+"/livez"); status != 200 {
		t.Fatalf("livez %d", status)
	}
	if status, _ := get(t, base+"/metrics"); status != 200 {
		t.Fatalf("metrics %d", status)
	}
}

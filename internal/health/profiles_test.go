package health

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Profiles are served on their own port and on no other, and nothing else there.
func TestProfilesHaveAPortOfTheirOwn(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	health, profiles := NewServer("127.0.0.1:0", &Checks{}, prometheus.NewRegistry()), NewProfiles("127.0.0.1:0", log)
	everywhere, nowhere := NewProfiles(":0", log), NewProfiles("", log)
	for _, s := range []*Server{health, profiles, nowhere} {
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1"} {
		if status, _ := get(t, "http://"+health.Addr()+path); status != http.StatusNotFound {
			t.Errorf("the health port answers %s with %d", path, status)
		}
	}
	if status, body := get(t, "http://"+profiles.Addr()+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("profiles: %d", status)
	}
	for _, path := range []string{"/livez", "/metrics", "/"} {
		if status, _ := get(t, "http://"+profiles.Addr()+path); status != http.StatusNotFound {
			t.Errorf("the port of profiles answers %s with %d", path, status)
		}
	}
	if nowhere.Addr() != "" {
		t.Errorf("served at %s, without an address", nowhere.Addr())
	}
	if out.Len() != 0 {
		t.Errorf("on loopback: %s", out.String())
	}
	if err := everywhere.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := everywhere.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "level=WARN") || !strings.Contains(out.String(), "--pprof-addr") {
		t.Errorf("on all interfaces: %q", out.String())
	}
}

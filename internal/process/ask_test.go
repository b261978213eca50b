package process

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMetricsAreRead(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# HELP x\na_total 1.5e+06\nloops 2\nother{code=\"OK\"} 3\n")
	}))
	defer srv.Close()
	p := &Process{Name: "edge", HTTP: srv.Listener.Addr().String()}
	got, err := p.Metrics(t.Context())
	if err != nil || got["a_total"] != 1.5e6 || got["loops"] != 2 || got[`other{code="OK"}`] != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
}

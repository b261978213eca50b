package cli

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/doctor"
)

// A mesh that runs is sound. One that a machine standing still makes slow is asked again.
func TestDoctor(t *testing.T) {
	t.Parallel()
	m := startMesh(t, t.TempDir())
	want := map[string]int{"mesh": 1, "reach": 4, "ready": 4, "versions": 1, "files": 1, "nats": 1, "postgres": 1}
	for tries := 0; ; tries++ {
		c := start(t, nil, with(m.router, "doctor", "--json", "--skew", "1h", "--patience", "1m")...)
		c.wait()
		var r doctor.Report
		if err := json.Unmarshal([]byte(c.out.String()), &r); err != nil {
			t.Fatalf("%v: %q %q", err, c.out.String(), c.err.String())
		}
		if r.Sound != (c.code == 0) {
			t.Fatalf("exit code %d, %+v", c.code, r)
		}
		good := map[string]int{}
		for _, f := range r.Findings {
			if f.Level == doctor.OK {
				good[f.Check]++
			}
		}
		delete(good, "probe") // a slow one is no failure
		delete(good, "clock")
		if r.Sound && maps.Equal(good, want) {
			break
		}
		if tries == 20 {
			t.Fatalf("%v are ok of %+v", good, r)
		}
	}
	if out := must(t, "", with(m.router, "doctor", "--no-probe", "--skew", "1h", "--patience", "1m")...); !strings.Contains(out, " ok, ") {
		t.Errorf("it says %q", out)
	}
}

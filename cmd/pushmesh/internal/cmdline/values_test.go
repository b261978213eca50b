package cmdline

import (
	"testing"
)

// TestFirstHourDurations has days, and every other duration as ever.
func TestFirstHourDurations(t *testing.T) {
	for text, want := range map[string]string{"7d": "168h0m0s", "1d12h": "36h0m0s", "-1d": "-24h0m0s", "90s": "1m30s", "0": "0s", "0d": "0s"} {
		if d, err := ParseDuration(text); err != nil || d.String() != want {
			t.Errorf("%q is %v, %v; want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "1.5d", "1d-1h", "1d+1h", "1dd", "99999d", "12h1d"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v", text, d)
		}
	}
}

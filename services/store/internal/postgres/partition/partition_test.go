package partition

import (
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

func TestOver(t *testing.T) {
	at := uint64(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	for c := range backend.Classes {
		s := slice{"log_" + c.String(), c.Slice(at)}
		end := s.End + uint64(c.Keep().Microseconds())
		if _, yes := over(s.name(), end-1, nil); yes {
			t.Errorf("%s is over too early", s.name())
		}
		if got, yes := over(s.name(), end, nil); !yes || got != s {
			t.Errorf("%s at its end: %v, %v", s.name(), got, yes)
		}
	}
	for _, name := range []string{"log_day", "log_day_", "log_day_x", "other_5", "", "5"} {
		if _, yes := over(name, 1<<62, nil); yes {
			t.Errorf("%q is taken for a slice", name)
		}
	}
}

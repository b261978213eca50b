package settings

import (
	"testing"
	"time"
)

type filled struct {
	Size  int           `default:"5"`
	Wait  time.Duration `default:"2s"`
	Rate  int           `zero:"keep" default:"7"`
	Names []string      `default:"a,b"`
	On    bool
	Clock func() time.Time `kong:"-"`
}

func TestFillGivesWhatIsZeroItsDefault(t *testing.T) {
	t.Setenv("PUSHMESH_SIZE", "9") // a variable is no default
	s := filled{Wait: time.Minute}
	Fill(&s)
	if s.Size != 5 || s.Wait != time.Minute || s.Rate != 0 || len(s.Names) != 2 || s.Names[1] != "b" || s.On || s.Clock != nil {
		t.Errorf("filled: %+v", s)
	}
	s.Names[0] = "changed"
	var next filled
	Fill(&next)
	if next.Names[0] != "a" {
		t.Error("two settings share a list")
	}
}

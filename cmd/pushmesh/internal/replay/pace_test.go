package replay

import (
	"slices"
	"testing"
	"time"
)

func TestOffsetsKeepRealPace(t *testing.T) {
	says := []Say{
		{Room: 0, Minute: 10},
		{Room: 0, Minute: 10},
		{Room: 0, Minute: 12},
		{Room: 1, Minute: 23*60 + 59}, // the next room follows without a pause
		{Room: 1, Minute: 1},          // past midnight
	}
	want := []time.Duration{0, 30 * time.Second, 2 * time.Minute, 2 * time.Minute, 4 * time.Minute}
	if got := offsets(says); !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

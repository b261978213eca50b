package procmesh

import (
	"os/exec"
	"testing"
)

// The package time of this version of Go can be replaced by one that tests set: where a new Go
// breaks that, this says so, and not the next long run of chaos.
func TestTheTimeOfThisGoCanBeSet(t *testing.T) {
	overlay, err := overlayOfTime(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "time").CombinedOutput(); err != nil {
		// #nosec G204 -- written above
		t.Errorf("%v\n%s", err, out)
	}
}

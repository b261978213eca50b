package cli

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What is shipped links no package for tests: neither their flags nor their servers.
func TestShippedProgramsDoNotLinkTesting(t *testing.T) {
	t.Parallel()
	const module = "github.com/pushmesh/pushmesh/"
	args := []string{"list", "-deps"}
	for _, program := range []string{"cmd/pushmesh", "services/edge/cmd/edge", "services/router/cmd/router", "services/compute/cmd/compute", "services/store/cmd/store"} {
		args = append(args, module+program)
	}
	// #nosec G204 -- of programs above
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(list))
	if !slices.Contains(packages, module+"internal/pgserver") {
		t.Fatal("what `pushmesh mesh` starts Postgres with is not among the packages")
	}
	if slices.Contains(packages, "testing") {
		t.Error("testing is among the packages of what is shipped")
	}
}

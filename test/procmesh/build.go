// Package procmesh runs a mesh of real processes on loopback, each tier its own, so that tests can
// kill, stop and restart them and look at the promises from outside.
package procmesh

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
)

const module = "github.com/pushmesh/pushmesh/"

// binaries that a mesh is made of, each named as the last part of its package that is no version.
var binaries = []string{
	module + "services/edge/cmd/edge",
	module + "services/router/cmd/router",
	module + "services/compute/cmd/compute",
	module + "services/store/cmd/store",
	module + "cmd/pushmesh",
	"github.com/nats-io/nats-server/v2",
}

// built are the folders of the binaries that were built here, once there are any.
var built, builtWithClocks atomic.Pointer[string]

// build builds every binary once per test process and returns their folder. PUSHMESH_TEST_BIN names
// one where they are already, for many processes.
var build = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("PUSHMESH_TEST_BIN"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "pushmesh-bin-")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	// #nosec G204 -- of packages above
	cmd := exec.Command("go", append([]string{"build", "-o", dir + string(filepath.Separator)}, binaries...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// Cleanup removes the binaries: call it at the end of TestMain.
func Cleanup() {
	for _, dir := range []*string{built.Load(), builtWithClocks.Load()} {
		if dir != nil {
			_ = os.RemoveAll(*dir)
		}
	}
}

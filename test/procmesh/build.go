// Package procmesh runs a mesh of real processes on loopback, each tier its own, so that tests can kill, stop
// and restart them and look at the promises from outside.
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

// binaries that a mesh is made of: name → package.
var binaries = map[string]string{
	"edge":        module + "services/edge/cmd/edge",
	"router":      module + "services/router/cmd/router",
	"compute":     module + "services/compute/cmd/compute",
	"store":       module + "services/store/cmd/store",
	"pushmesh":    module + "cmd/pushmesh",
	"nats-server": "github.com/nats-io/nats-server/v2",
}

// built is the folder of the binaries, once there are any.
var built atomic.Pointer[string]

// build builds every binary once per test process and returns their folder.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pushmesh-bin-")
	if err != nil {
		return "", err
	}
	built.Store(&dir)
	for name, pkg := range binaries {
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), pkg)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return dir, nil
})

// Cleanup removes the binaries: call it at the end of TestMain.
func Cleanup() {
	if dir := built.Load(); dir != nil {
		_ = os.RemoveAll(*dir)
	}
}

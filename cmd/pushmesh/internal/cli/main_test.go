package cli

import (
	"fmt"
	"os"
	"testing"
)

// TestMain keeps the contexts of whoever runs the tests out of them.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pushmesh-cli-*")
	if err == nil {
		err = os.Setenv("XDG_CONFIG_HOME", dir)
	}
	if err == nil {
		err = os.Unsetenv("PUSHMESH_CONTEXT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

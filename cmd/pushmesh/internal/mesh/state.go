package mesh

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// StateFile is the name of the file in Settings.Dir that says what runs, for scripts and chaos
// tests. It is replaced, whole, at every change.
const StateFile = "state.json"

// State is what StateFile holds.
type State struct {
	Pid       int            `json:"pid"` // of the launcher
	Edges     []string       `json:"edges"`
	Routers   []string       `json:"routers"`
	Stores    []string       `json:"stores"`
	Computes  []string       `json:"computes"`
	NATS      string         `json:"nats"` // URLs of all servers, with commas between
	Postgres  string         `json:"postgres"`
	Processes []ProcessState `json:"processes"`
}

// ProcessState is one process: with path and args a script can start it again after it killed it.
type ProcessState struct {
	Name string   `json:"name"`
	Pid  int      `json:"pid"`
	Addr string   `json:"addr"`
	HTTP string   `json:"http,omitempty"`
	Log  string   `json:"log"`
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"` // besides the launcher's
}

// write replaces the file: a reader sees the old one or the new one.
func (s State) write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	next := filepath.Join(dir, StateFile+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := os.Rename(next, filepath.Join(dir, StateFile)); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return nil
}

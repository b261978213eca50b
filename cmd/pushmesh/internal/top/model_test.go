package top

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

func press(m *Model, keys ...string) (last tea.Cmd) {
	for _, k := range keys {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)}
		switch k {
		case "up":
			msg = tea.KeyMsg{Type: tea.KeyUp}
		case "down":
			msg = tea.KeyMsg{Type: tea.KeyDown}
		}
		_, last = m.Update(msg)
	}
	return last
}

func shows(t *testing.T, m *Model, want ...string) {
	t.Helper()
	for _, w := range want {
		if view := m.View(); !strings.Contains(view, w) {
			t.Errorf("%q is not in\n%s", w, view)
		}
	}
}

func TestKeys(t *testing.T) {
	m := &Model{every: time.Second}
	shows(t, m, "asking the mesh")
	m.Update(readMsg{err: errors.New("connection\nrefused")})
	shows(t, m, "no router answers: connection refused")
	m.Update(readMsg{reading: reading(t, "a")})
	m.Update(readMsg{reading: reading(t, "b")})
	shows(t, m, "router-1", "published/s", "sort (by name)", "every 1s")
	if strings.Contains(m.View(), "no router answers") {
		t.Error("an error stays that is over")
	}
	// What goes wrong later is said beside what was known last.
	m.Update(readMsg{err: errors.New("gone")})
	shows(t, m, "router-1", "no router answers: gone")
	press(m, "s")
	shows(t, m, "sort (by load)")
	press(m, "s", "s")
	shows(t, m, "sort (by name)")
	press(m, "?")
	shows(t, m, "event loop of the last 10 s")
	press(m, "?", "p")
	shows(t, m, "paused")
	if _, cmd := m.Update(tickMsg{}); cmd == nil || m.asking {
		t.Error("it asks while it is paused, or does not go on")
	}
	press(m, "p")
	if m.Update(tickMsg{}); !m.asking {
		t.Error("it does not ask any more")
	}
	if cmd := press(m, "q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

// A window smaller than the mesh shows a part, and always the last line.
func TestSmallWindow(t *testing.T) {
	m := &Model{every: time.Second}
	m.Update(readMsg{reading: reading(t, "b")})
	m.Update(tea.WindowSizeMsg{Width: 30, Height: 5})
	first := strings.Split(m.View(), "\n")
	press(m, "down")
	second := strings.Split(m.View(), "\n")
	if len(first) != 5 || len(second) != 5 || first[2] != second[1] || !strings.HasPrefix(second[4], "q quit") {
		t.Errorf("%q then %q", first, second)
	}
	for _, l := range first {
		if len([]rune(l)) > 30 {
			t.Errorf("%q is too wide", l)
		}
	}
	press(m, strings.Split(strings.Repeat("down ", 99)+"down", " ")...)
	if last := strings.Split(m.View(), "\n"); len(last) != 5 || !strings.HasPrefix(last[3], "compute-1") {
		t.Errorf("%q", last)
	}
	press(m, strings.Split(strings.Repeat("up ", 99)+"up", " ")...)
	if got := strings.Split(m.View(), "\n"); got[0] != first[0] {
		t.Errorf("%q", got)
	}
}

// The real program draws, refreshes and quits, without any terminal.
func TestRun(t *testing.T) {
	in, keys := io.Pipe()
	var mu sync.Mutex
	var out bytes.Buffer
	asked := 0
	ask := func(context.Context) (*Reading, error) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked == 3 {
			go func() { _, _ = keys.Write([]byte("q")) }()
		}
		return reading(t, "a"), nil
	}
	if err := Run(t.Context(), ask, time.Millisecond, tea.WithInput(in), tea.WithOutput(&out), tea.WithoutSignalHandler()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "router-1") {
		t.Errorf("it drew %q", out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, ask, time.Hour, tea.WithInput(in), tea.WithOutput(io.Discard), tea.WithoutSignalHandler()); err != nil {
		t.Errorf("ended from outside: %v", err)
	}
}

package top

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// Ask reads the mesh once (Read).
type Ask func(ctx context.Context) (*Reading, error)

// Model is the terminal's state. Run drives it; its Update and View are functions of what came.
type Model struct {
	ask   Ask
	every time.Duration

	now, before   *Reading
	err           error
	order         Order
	help, paused  bool
	asking        bool
	width, height int
	top           int // the first line shown
}

type (
	tickMsg time.Time
	readMsg struct {
		reading *Reading
		err     error
	}
)

// Run shows the mesh until the user quits or ctx ends.
func Run(ctx context.Context, ask Ask, every time.Duration, options ...tea.ProgramOption) error {
	m := &Model{ask: ask, every: every, asking: true}
	_, err := tea.NewProgram(m, append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithAltScreen()}, options...)...).Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it is ended
	}
	return err
}

// Init asks for the first time.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.read(), m.tick()) }

func (m *Model) read() tea.Cmd {
	return func() tea.Msg {
		r, err := m.ask(context.Background())
		return readMsg{r, err}
	}
}

func (m *Model) tick() tea.Cmd {
	return tea.Tick(m.every, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Update takes what came.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case readMsg:
		m.asking, m.err = false, msg.err
		if msg.err == nil {
			m.before, m.now = m.now, msg.reading
		}
	case tickMsg:
		if m.asking || m.paused {
			return m, m.tick()
		}
		m.asking = true
		return m, tea.Batch(m.read(), m.tick())
	case tea.KeyMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

func (m *Model) key(name string) tea.Cmd {
	switch name {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "s":
		m.order = (m.order + 1) % orders
	case "?", "h":
		m.help = !m.help
	case "p", " ":
		m.paused = !m.paused
	case "down", "j":
		m.top = min(m.top+1, max(len(m.lines())-(m.height-1), 0))
	case "up", "k":
		m.top = max(m.top-1, 0)
	}
	return nil
}

const helpText = `
  q        quit
  s        sort by name, load (deliveries, publishes, appends) or delay
  p        pause, and go on
  up down  the lines above and below
  ? h      this help

Rates (/S) and latencies (P99) are of the time since the last refresh. LAG is the worst event loop of the last 10 s.
A node in state "silent" does not answer over HTTP, "gone" is not heard by the router; "unready" says so itself.
docs/operations.md says when to look closer.`

func (m *Model) lines() []string {
	if m.help {
		return strings.Split(helpText, "\n")
	}
	lines := []string{"asking the mesh ..."}
	if m.now != nil {
		lines = Picture(m.now, m.before, m.order)
	}
	if m.err != nil {
		lines = append(lines, "", "no router answers: "+strings.Join(strings.Fields(m.err.Error()), " "))
	}
	return lines
}

// View is what is shown.
func (m *Model) View() string {
	paused := ""
	if m.paused {
		paused = ", paused"
	}
	foot := fmt.Sprintf("q quit  s sort (by %s)  p pause  ? help; every %s%s", m.order, m.every, paused)
	return frame(m.lines(), foot, m.top, m.width, m.height)
}

// frame cuts lines to the window, from the line top on, with foot as the last. A window of no size
// is as large as need be.
func frame(lines []string, foot string, top, width, height int) string {
	if room := height - 1; height > 0 && len(lines) > room {
		top = min(top, len(lines)-room)
		lines = lines[top : top+max(room, 0)]
	}
	lines = append(lines[:len(lines):len(lines)], foot)
	for i, l := range lines {
		if runes := []rune(l); width > 0 && len(runes) > width {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}

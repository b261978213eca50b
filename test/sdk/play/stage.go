package play

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// stage is a scene that is played by one transport.
type stage struct {
	board     *board
	transport string
	edges     []*edge
	driver    *driver
	kept      map[string]map[string]any
	began     time.Time
	last      time.Time // what the next step's time is counted from
	came      time.Time // what the present step has waited for; zero: it waits for nothing

	// Guarded by board.mu.
	conns []*conn
	story []string // what has happened, for people

	conn *conn // the present one
}

// log adds to the story. Called with board.mu held, as is note.
func (s *stage) log(format string, args ...any) {
	s.story = append(s.story, fmt.Sprintf("%8.3f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

func (s *stage) note(way string, t wirev1.FrameType, m map[string]any) {
	some := map[string]any{}
	for k, v := range m {
		if !isZero(v) {
			some[k] = v
		}
	}
	s.log("%s %s %s", way, frameName(t), show(some))
}

// Result of a scene.
type Result struct {
	Scene     *Scene
	Transport string
	// Without is the feature that the SDK lacks; empty: it was played.
	Without string
	Err     error
	Took    time.Duration
	// Story has lines and frames, in the order of time.
	Story []string
}

// play plays a scene. What the program says of itself tells whether it can.
func play(sc *Scene, transport string, program []string) (r Result) {
	r = Result{Scene: sc, Transport: transport}
	s := &stage{board: newBoard(), transport: transport, kept: map[string]map[string]any{}, began: time.Now()}
	defer func() {
		r.Took = time.Since(s.began)
		s.board.post(func() { r.Story = s.story })
	}()
	defer func() {
		for _, e := range s.edges {
			e.stop()
		}
	}()
	for _, name := range sc.edges {
		e, err := newEdge(s, name)
		if err != nil {
			r.Err = err
			return r
		}
		s.edges = append(s.edges, e)
		s.kept[name] = map[string]any{"address": e.addr}
	}
	d, err := startDriver(s, program)
	if err != nil {
		r.Err = err
		return r
	}
	s.driver = d
	if r.Without, err = s.lacks(sc); err == nil && r.Without == "" {
		err = s.steps(sc)
	}
	if stopped := d.stop(); err == nil {
		err = stopped
	}
	r.Err = err
	if said := d.said.tail(); said != "" {
		s.board.post(func() { s.log("standard error: %s", said) })
	}
	return r
}

// lacks waits for the program's first line, and finds what the SDK does not have.
func (s *stage) lacks(sc *Scene) (string, error) {
	var ready map[string]any
	err := s.board.await(2*patience, func() (bool, error) {
		if len(s.driver.lines) == 0 {
			return false, nil
		}
		ready = s.driver.lines[0].m
		return true, nil
	})
	if err != nil || text(ready["told"]) != "ready" {
		return "", errors.Join(err, fmt.Errorf("the program's first line is %s, want one that tells \"ready\"", show(ready)))
	}
	if have := texts(ready["transports"]); !slices.Contains(have, s.transport) {
		return s.transport, nil
	}
	without := texts(ready["without"])
	for _, need := range sc.Needs {
		if slices.Contains(without, need) {
			return need, nil
		}
	}
	return "", nil
}

func texts(x any) (all []string) {
	list, _ := x.([]any)
	for _, one := range list {
		all = append(all, text(one))
	}
	return all
}

func (s *stage) steps(sc *Scene) error {
	s.last = time.Now()
	for _, st := range sc.steps {
		s.board.post(func() { s.log("%s.scene:%d: %s", sc.Name, st.line, st.text) })
		began := time.Now()
		s.came = time.Time{}
		if err := st.run(s); err != nil {
			return fmt.Errorf("%s.scene:%d: %s: %w", sc.Name, st.line, cut(st.text), err)
		}
		if s.last = s.came; s.came.IsZero() {
			s.last = began // what is done may be noticed before this goroutine goes on
		}
	}
	return s.leftOver()
}

func cut(text string) string {
	if len(text) > 120 {
		return text[:120] + "…"
	}
	return text
}

// leftOver finds what came and no step has asked for.
func (s *stage) leftOver() (err error) {
	s.board.post(func() {
		err = s.untold()
		for _, c := range s.conns {
			if !c.taken {
				err = errors.Join(err, errors.New("at the end: a connection that the scene does not know of"))
			}
			err = errors.Join(err, c.unread("at the end: "))
		}
	})
	return err
}

// untold finds a line that no step has asked for. Called with board.mu held, as is unread.
func (s *stage) untold() error {
	for _, l := range s.driver.lines {
		if !l.taken && !l.passing() {
			return fmt.Errorf("the program tells what the scene does not expect: %s", show(l.m))
		}
	}
	return nil
}

func (c *conn) unread(when string) error {
	for _, f := range c.frames {
		if !f.taken && !f.passing() && (f.t != wirev1.FrameType_FRAME_TYPE_UNSUBSCRIBE || when == "") {
			return fmt.Errorf("%sthe edge got a frame that the scene does not expect: %s %s", when, frameName(f.t), show(f.m))
		}
	}
	return nil
}

// addresses are those of all edges.
func (s *stage) addresses() (all []any) {
	for _, e := range s.edges {
		all = append(all, e.addr)
	}
	return all
}

func (s *stage) edge(name string) *edge {
	i := slices.IndexFunc(s.edges, func(e *edge) bool { return e.name == name })
	if i < 0 {
		return nil
	}
	return s.edges[i]
}

// unseen describes what there is instead of what was waited for. Called with board.mu held.
func unseen(all []string) string {
	if len(all) == 0 {
		return "there is nothing"
	}
	return "there is " + strings.Join(all, "; ")
}

package play

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// line is one that the program has told.
type line struct {
	at    time.Time
	m     map[string]any
	taken bool // by a step
}

func (l *line) told() string { return text(l.m["told"]) }

// passing lines may come or not.
func (l *line) passing() bool {
	return slices.Contains([]string{"ready", "log", "disconnected", "connect failed", "refused"}, l.told())
}

// driver is the program that joins an SDK to the line protocol.
type driver struct {
	board *board
	stage *stage
	cmd   *exec.Cmd
	in    io.WriteCloser
	said  lockedBuffer // on standard error
	ended chan struct{}
	err   error // of its end

	lines []*line // guarded by board.mu
}

func startDriver(s *stage, program []string) (*driver, error) {
	d := &driver{board: s.board, stage: s, cmd: exec.Command(program[0], program[1:]...), ended: make(chan struct{})}
	d.cmd.Stderr = &d.said
	in, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d.in = in
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go d.read(out)
	return d, nil
}

func (d *driver) read(out io.Reader) {
	defer close(d.ended)
	in := bufio.NewScanner(out)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		l := &line{at: time.Now()}
		dec := json.NewDecoder(bytes.NewReader(in.Bytes()))
		dec.UseNumber()
		if err := dec.Decode(&l.m); err != nil {
			d.board.fail(fmt.Errorf("the program's line %q is no JSON object: %w", in.Text(), err))
			continue
		}
		d.board.post(func() {
			d.lines = append(d.lines, l)
			d.stage.log("tells %s", show(l.m))
		})
	}
	d.err = errors.Join(in.Err(), d.cmd.Wait())
	d.board.fail(fmt.Errorf("the program has ended (%v): %s", d.cmd.ProcessState, d.said.tail()))
}

func (d *driver) do(m map[string]any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	d.board.post(func() { d.stage.log("do    %s", show(m)) })
	_, err = d.in.Write(append(b, '\n'))
	return err
}

// stop closes the program's input and waits for its end.
func (d *driver) stop() error {
	_ = d.in.Close() // it may have ended
	select {
	case <-d.ended:
		if d.err != nil {
			return fmt.Errorf("the program's end: %w: %s", d.err, d.said.tail())
		}
		return nil
	case <-time.After(5 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.ended
		return errors.New("the program does not end within 5 s of the end of its input")
	}
}

// lockedBuffer keeps what several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.b.Bytes()
	return string(b[max(0, len(b)-2000):])
}

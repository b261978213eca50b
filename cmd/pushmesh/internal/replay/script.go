// Package replay plays a recorded chat through a mesh: every user of a room is one subscriber of
// its topic, every say is published, and every delivery is checked.
package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Script is a recorded chat: rooms, who is in them, and what was said, in the order of the file.
type Script struct {
	Rooms []Room
	Says  []Say
}

// Room is one room of a Script. Its users are all who appear in it by any kind of event.
type Room struct {
	Name  string
	Users int
	Says  int
}

// Say is one message of a room. Index counts the room's says from 0.
type Say struct {
	Room   int
	Index  int
	Minute int // of the day
	User   string
	Text   string
}

// Expected is how many deliveries the script comes to: every user of a room gets every say of that
// room.
func (s *Script) Expected() uint64 {
	var n uint64
	for _, r := range s.Rooms {
		n += r.Expected()
	}
	return n
}

// Expected is how many deliveries the room comes to.
func (r Room) Expected() uint64 { return uint64(r.Users) * uint64(r.Says) }

// maxLine bounds a line of the file; a say is a line of chat, far shorter.
const maxLine = 1 << 20

// ReadFile reads a script from a file of JSON lines, gzip or plain.
func ReadFile(path string) (*Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	script, err := Read(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return script, f.Close()
}

// Read reads a script from JSON lines, gzip or plain.
func Read(r io.Reader) (*Script, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(2)
	if err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return readLines(unzip)
	}
	return readLines(in)
}

type event struct {
	Room string `json:"room"`
	At   string `json:"at"`
	Kind string `json:"kind"`
	User string `json:"user"`
	Text string `json:"text"`
}

func readLines(r io.Reader) (*Script, error) {
	b := builder{rooms: map[string]int{}, users: map[member]bool{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if err := b.add(e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(b.script.Says) == 0 {
		return nil, errors.New("nothing is said in it")
	}
	return &b.script, nil
}

type member struct {
	room int
	user string
}

type builder struct {
	script Script
	rooms  map[string]int
	users  map[member]bool
}

func (b *builder) add(e event) error {
	if e.Room == "" || e.User == "" {
		return errors.New("an event needs room and user")
	}
	minute, err := minuteOf(e.At)
	if err != nil {
		return err
	}
	at, known := b.rooms[e.Room]
	if !known {
		at = len(b.script.Rooms)
		b.rooms[e.Room] = at
		b.script.Rooms = append(b.script.Rooms, Room{Name: e.Room})
	}
	room := &b.script.Rooms[at]
	if who := (member{at, e.User}); !b.users[who] {
		b.users[who] = true
		room.Users++
	}
	switch e.Kind {
	case "join", "leave":
	case "say":
		b.script.Says = append(b.script.Says, Say{Room: at, Index: room.Says, Minute: minute, User: e.User, Text: e.Text})
		room.Says++
	default:
		return fmt.Errorf("kind %q: say, join or leave", e.Kind)
	}
	return nil
}

func minuteOf(at string) (int, error) {
	var h, m int
	if n, err := fmt.Sscanf(at, "%2d:%2d", &h, &m); n != 2 || err != nil || h < 0 || h > 23 || m < 0 || m > 59 {
		return 0, fmt.Errorf("at %q: HH:MM", at)
	}
	return h*60 + m, nil
}

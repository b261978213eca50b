package replay

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
)

// A payload is a JSON object that people can read, and begins with a mark of fixed width that a
// subscriber checks without decoding JSON:
//
//	{"id":"RUN8BYTES ROOM4BYTES INDEX4BYTES SENT8BYTES in hex","user":"…","text":"…"}
const (
	markPrefix = `{"id":"`
	markSize   = 24
)

// mark says which message a payload is: of which run, which room of the script, which say of the
// room, and when it was published (Unix nanoseconds, this process's clock).
type mark struct {
	run   uint64
	room  uint32
	index uint32
	sent  int64
}

func (m mark) payload(user, text string) ([]byte, error) {
	var raw [markSize]byte
	binary.BigEndian.PutUint64(raw[0:], m.run)
	binary.BigEndian.PutUint32(raw[8:], m.room)
	binary.BigEndian.PutUint32(raw[12:], m.index)
	binary.BigEndian.PutUint64(raw[16:], uint64(m.sent))
	rest, err := json.Marshal(struct {
		User string `json:"user"`
		Text string `json:"text"`
	}{user, text})
	if err != nil {
		return nil, err
	}
	out := append([]byte(markPrefix), hex.AppendEncode(nil, raw[:])...)
	out = append(out, `",`...)
	return append(out, rest[1:]...), nil
}

// readMark reads the mark that a payload begins with; false where there is none.
func readMark(payload []byte) (mark, bool) {
	if len(payload) < len(markPrefix)+2*markSize || string(payload[:len(markPrefix)]) != markPrefix {
		return mark{}, false
	}
	var raw [markSize]byte
	if _, err := hex.Decode(raw[:], payload[len(markPrefix):len(markPrefix)+2*markSize]); err != nil {
		return mark{}, false
	}
	return mark{
		run:   binary.BigEndian.Uint64(raw[0:]),
		room:  binary.BigEndian.Uint32(raw[8:]),
		index: binary.BigEndian.Uint32(raw[12:]),
		sent:  int64(binary.BigEndian.Uint64(raw[16:])),
	}, true
}

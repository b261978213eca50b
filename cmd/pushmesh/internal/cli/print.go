package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// formatFlag chooses between lines for people and lines of JSON.
type formatFlag struct {
	Format string `enum:"text,json" default:"text" help:"Output: text, or json (one object a line)."`
}

// shownMessage is a message as `sub` and `history` print it. Payload is set where it is UTF-8,
// PayloadBase64 where not.
type shownMessage struct {
	Topic         string            `json:"topic"`
	Epoch         uint64            `json:"epoch,omitempty"`
	Seq           uint64            `json:"seq,omitempty"`
	ID            string            `json:"id,omitempty"`
	PublishedAt   string            `json:"published_at,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 string            `json:"payload_base64,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Priority      uint32            `json:"priority,omitempty"`
	Attempt       uint32            `json:"attempt,omitempty"`
	From          string            `json:"from,omitempty"`
	Score         float64           `json:"score,omitempty"`
	Unranked      bool              `json:"unranked,omitempty"`
}

func (m *shownMessage) setPayload(p []byte) {
	if utf8.Valid(p) {
		s := string(p)
		m.Payload = &s
		return
	}
	m.PayloadBase64 = base64.StdEncoding.EncodeToString(p)
}

// print writes one line: "topic seq payload", or JSON.
func (f formatFlag) print(w io.Writer, m *shownMessage) error {
	if f.Format == "json" {
		return writeJSON(w, m)
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\n", m.Topic, m.number(), m.text())
	return err
}

func (m *shownMessage) number() string {
	if m.Seq == 0 {
		return "-"
	}
	return strconv.FormatUint(m.Seq, 10)
}

func (m *shownMessage) text() string {
	if m.Payload != nil {
		return *m.Payload
	}
	return m.PayloadBase64
}

func writeJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

func showID(id []byte) string {
	u, err := uuid.FromBytes(id)
	if err != nil {
		return ""
	}
	return u.String()
}

func showTime(micros uint64) string {
	if micros == 0 {
		return ""
	}
	return time.UnixMicro(int64(micros)).UTC().Format(time.RFC3339Nano)
}

// Package cmdline is what subcommands share: flags, calls of routers, output, and exit codes.
package cmdline

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// IO is where a command reads and writes.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// FormatFlag chooses between lines for people and lines of JSON.
type FormatFlag struct {
	Format string `enum:"text,json" default:"text" help:"Output: text, or json (one object a line)."`
}

// Message is a message as `sub` and `history` print it. Payload is set where it is UTF-8,
// PayloadBase64 where not.
type Message struct {
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

// SetPayload sets the payload, as text where it is.
func (m *Message) SetPayload(p []byte) {
	if utf8.Valid(p) {
		s := string(p)
		m.Payload = &s
		return
	}
	m.PayloadBase64 = base64.StdEncoding.EncodeToString(p)
}

// print writes one line: "topic seq payload", or JSON.
func (f FormatFlag) Print(w io.Writer, m *Message) error {
	if f.Format == "json" {
		return WriteJSON(w, m)
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%s\n", m.Topic, m.Number(), m.Text())
	return err
}

// Number is the seq; a dash where there is none.
func (m *Message) Number() string {
	if m.Seq == 0 {
		return "-"
	}
	return strconv.FormatUint(m.Seq, 10)
}

// Text is the payload.
func (m *Message) Text() string {
	if m.Payload != nil {
		return *m.Payload
	}
	return m.PayloadBase64
}

// WriteJSON writes v as a line.
func WriteJSON(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// ShowID is a message id as text.
func ShowID(id []byte) string {
	u, err := uuid.FromBytes(id)
	if err != nil {
		return ""
	}
	return u.String()
}

// ShowTime is a time in microseconds as text; 0 is empty.
func ShowTime(micros uint64) string {
	if micros == 0 {
		return ""
	}
	return time.UnixMicro(int64(micros)).UTC().Format(time.RFC3339Nano)
}

// OrDash is s, or a dash where it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// ShortNumber is a number for people, to ten digits.
func ShortNumber(v float64) string { return strconv.FormatFloat(v, 'g', 10, 64) }

// Table prints rows for people in columns, or as lines of JSON.
type Table struct {
	json    io.Writer // nil: columns
	columns *tabwriter.Writer
}

// Table begins one with these headings.
func (f FormatFlag) Table(w io.Writer, headings ...string) *Table {
	if f.Format == "json" {
		return &Table{json: w}
	}
	t := &Table{columns: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.columns, strings.Join(headings, "\t"))
	return t
}

// Row prints the object, or its cells.
func (t *Table) Row(object any, cells ...any) error {
	if t.json != nil {
		return WriteJSON(t.json, object)
	}
	_, err := fmt.Fprintf(t.columns, strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...)
	return err
}

// Flush ends the table.
func (t *Table) Flush() error {
	if t.columns == nil {
		return nil
	}
	return t.columns.Flush()
}

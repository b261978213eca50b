// Package candidates reads what is to be ranked from files: LibSVM lines, as sets for learning to
// rank come in, or lines of JSON.
package candidates

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// maxLine holds thousands of features or dimensions.
const maxLine = 4 << 20

// Line is one candidate of a file.
type Line struct {
	*pushmeshv1.Candidate
	// Number of the line in the file, from 1.
	Number int
	// Label is the relevance that a LibSVM line says; "": none.
	Label string
	// Query is the qid of a LibSVM line; "": none.
	Query string
}

// Config of a Reader.
type Config struct {
	// Name of the file, for errors.
	Name string
	// Prefix goes before the indices of LibSVM features to make their names.
	Prefix string
}

// Reader reads candidates line by line. Empty lines, and of LibSVM comments, are passed over. The
// first line tells the format: one of JSON begins with {.
type Reader struct {
	cfg    Config
	lines  *bufio.Scanner
	number int
	parse  func(line []byte, l *Line) error
	ahead  *Line // read, and not given away
}

// NewReader makes a reader.
func NewReader(in io.Reader, cfg Config) *Reader {
	r := &Reader{cfg: cfg, lines: bufio.NewScanner(in)}
	r.lines.Buffer(make([]byte, 64<<10), maxLine)
	return r
}

// Next is the next candidate; the error is io.EOF at the end, and otherwise names the file and the
// line.
func (r *Reader) Next() (*Line, error) {
	if l := r.ahead; l != nil {
		r.ahead = nil
		return l, nil
	}
	for r.lines.Scan() {
		r.number++
		line := bytes.TrimSpace(r.lines.Bytes())
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if r.parse == nil {
			r.parse = r.cfg.libSVM
			if line[0] == '{' {
				r.parse = parseJSON
			}
		}
		l := &Line{Candidate: &pushmeshv1.Candidate{}, Number: r.number}
		if err := r.parse(line, l); err != nil {
			return nil, r.fault(r.number, err)
		}
		if l.Id == "" {
			l.Id = fmt.Sprint(r.number)
		}
		return l, nil
	}
	if err := r.lines.Err(); err != nil {
		return nil, r.fault(r.number+1, err)
	}
	return nil, io.EOF
}

func (r *Reader) fault(line int, err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("more than %d bytes", maxLine)
	}
	return fmt.Errorf("%s: line %d: %w", r.cfg.Name, line, err)
}

// Query is the next query's candidates: those of lines with the same qid that follow each other,
// all where there are none. io.EOF: there is no more.
func (r *Reader) Query() ([]*Line, error) {
	var all []*Line
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && l.Query != all[0].Query {
			r.ahead = l
			return all, nil
		}
		all = append(all, l)
	}
}

// Some is the next n candidates.
func (r *Reader) Some(n int) ([]*Line, error) {
	var all []*Line
	for len(all) < n {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %d candidates of the last query are missing", r.cfg.Name, n-len(all))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

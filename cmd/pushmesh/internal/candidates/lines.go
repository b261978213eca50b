package candidates

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
)

// libSVM reads "LABEL [qid:QUERY] INDEX:VALUE …", of which the label may be left out, and what
// follows # is a comment.
func (c Config) libSVM(line []byte, l *Line) error {
	text, _, _ := strings.Cut(string(line), "#")
	fields := strings.Fields(text)
	if len(fields) > 0 && !strings.Contains(fields[0], ":") {
		if _, err := strconv.ParseFloat(fields[0], 64); err != nil {
			return fmt.Errorf("%.40q is neither a label nor INDEX:VALUE", fields[0])
		}
		l.Label, fields = fields[0], fields[1:]
	}
	l.Features = make(map[string]float64, len(fields))
	for _, f := range fields {
		index, value, _ := strings.Cut(f, ":")
		if index == "qid" {
			l.Query = value
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if _, bad := strconv.ParseUint(index, 10, 32); bad != nil || err != nil {
			return fmt.Errorf("%.40q is not INDEX:VALUE", f)
		}
		name := c.Prefix + index
		if _, twice := l.Features[name]; twice {
			return fmt.Errorf("feature %s is given twice", index)
		}
		l.Features[name] = v
	}
	return nil
}

// parseJSON reads a pushmeshv1.Candidate.
func parseJSON(line []byte, l *Line) error {
	if err := protojson.Unmarshal(line, l.Candidate); err != nil {
		return fmt.Errorf("not a candidate: %s", strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: "))
	}
	return nil
}

// Sizes reads how many candidates each query has, a number on each line.
func Sizes(in io.Reader, name string) ([]int, error) {
	var sizes []int
	lines := bufio.NewScanner(in)
	for number := 1; lines.Scan(); number++ {
		text := string(bytes.TrimSpace(lines.Bytes()))
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: line %d: %.40q is not a number of candidates", name, number, text)
		}
		sizes = append(sizes, n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return sizes, nil
}

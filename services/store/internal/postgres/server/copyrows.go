package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// CopyRows visits the rows of a query by COPY, in Postgres's binary formats; nil is NULL. Values
// are visit's as long as it runs. A row costs a third of what one of Query does, so that it pays
// for millions. The query takes no parameters.
func CopyRows(ctx context.Context, tx pgx.Tx, query string, visit func(values [][]byte) error) error {
	into := &copied{visit: visit}
	_, err := tx.Conn().PgConn().CopyTo(ctx, into, "COPY ("+query+") TO STDOUT (FORMAT binary)")
	if err == nil && !into.ended {
		err = errors.New("a COPY ended before its last row")
	}
	return err
}

// copied takes a stream in COPY's binary format, cut anywhere.
// Source: https://www.postgresql.org/docs/current/sql-copy.html, Binary Format.
type copied struct {
	visit        func(values [][]byte) error
	rest         []byte // the begin of what is not whole yet
	values       [][]byte
	begun, ended bool
}

var copySignature = []byte("PGCOPY\n\xff\r\n\x00")

func (c *copied) Write(p []byte) (int, error) {
	data := p
	if len(c.rest) > 0 {
		c.rest = append(c.rest, p...)
		data = c.rest
	}
	for len(data) > 0 {
		took, err := c.take(data)
		if err != nil {
			return 0, err
		}
		if took == 0 {
			break
		}
		data = data[took:]
	}
	c.rest = append(c.rest[:0], data...)
	return len(p), nil
}

// take takes the header, a row or the end, and returns how long it is; 0: it is not whole.
func (c *copied) take(data []byte) (int, error) {
	switch {
	case c.ended:
		return 0, errors.New("a COPY goes on behind its end")
	case !c.begun:
		return c.header(data)
	case len(data) < 2:
		return 0, nil
	}
	n, at := int(int16(binary.BigEndian.Uint16(data))), 2
	if n == -1 {
		c.ended = true
		return at, nil
	}
	if n < 0 {
		return 0, fmt.Errorf("a row of a COPY has %d columns", n)
	}
	c.values = c.values[:0]
	for range n {
		if len(data) < at+4 {
			return 0, nil
		}
		size := int(int32(binary.BigEndian.Uint32(data[at:])))
		at += 4
		switch {
		case size == -1:
			c.values = append(c.values, nil)
			continue
		case size < 0:
			return 0, fmt.Errorf("a value of a COPY has %d bytes", size)
		case len(data)-at < size:
			return 0, nil
		}
		c.values = append(c.values, data[at:at+size:at+size])
		at += size
	}
	return at, c.visit(c.values)
}

func (c *copied) header(data []byte) (int, error) {
	fixed := len(copySignature) + 8
	if n := min(len(data), len(copySignature)); !bytes.Equal(data[:n], copySignature[:n]) {
		return 0, errors.New("this is not the binary format of COPY")
	}
	if len(data) < fixed {
		return 0, nil
	}
	flags, more := binary.BigEndian.Uint32(data[len(copySignature):]), binary.BigEndian.Uint32(data[fixed-4:])
	if flags&0xffff0000 != 0 || more > 1<<16 {
		return 0, fmt.Errorf("a COPY has flags %#x and %d further bytes in its header, which nothing is known of", flags, more)
	}
	if len(data) < fixed+int(more) {
		return 0, nil
	}
	c.begun = true
	return fixed + int(more), nil
}

// Int4 reads an integer in Postgres's binary format.
func Int4(value []byte) (int32, error) {
	if len(value) != 4 {
		return 0, fmt.Errorf("an int4 of %d bytes", len(value))
	}
	return int32(binary.BigEndian.Uint32(value)), nil
}

// Int8 reads an integer in Postgres's binary format.
func Int8(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("an int8 of %d bytes", len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

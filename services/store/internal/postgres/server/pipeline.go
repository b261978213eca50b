package server

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// BinaryForm says that every parameter is in binary form.
var BinaryForm = []int16{1}

// rowsPerLook is how many rows are read before the deadline is moved.
const rowsPerLook = 1024

// Pipelined sends statements in one round trip and one transaction, and visits each row with the
// number of its statement; row may be nil where there are none.
//
// Everything before a Sync is one transaction, which the server commits when it reaches that: no
// BEGIN and no COMMIT are needed, and the answer to the Sync is the answer to the commit. It has
// until ctx's deadline, and the server at most patience for rowsPerLook rows: the connection's
// deadline does that, where pgx would start a goroutine each time.
func (c *Conn) Pipelined(ctx context.Context, patience time.Duration, write func(*pgconn.Pipeline), row func(statement int, values [][]byte)) error {
	raw := c.PgConn().Conn()
	extend := func() error {
		until := time.Now().Add(patience)
		if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
			until = deadline
		}
		return errors.Join(ctx.Err(), raw.SetDeadline(until))
	}
	if err := extend(); err != nil {
		return err
	}
	// one that can't be set is closed, and the next use says so
	defer func() { _ = raw.SetDeadline(time.Time{}) }()
	p := c.PgConn().StartPipeline(context.Background())
	write(p)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	err := answers(p, extend, row)
	if closeErr := p.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = Replicated(c.PgConn())
	}
	return err
}

func answers(p *pgconn.Pipeline, extend func() error, row func(statement int, values [][]byte)) error {
	read := 0
	for statement := 0; ; statement++ {
		results, err := p.GetResults()
		if err != nil {
			return err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			if _, synced := results.(*pgconn.PipelineSync); !synced {
				return errors.New("the server did not answer the commit")
			}
			return nil
		}
		for reader.NextRow() {
			row(statement, reader.Values())
			if read++; read%rowsPerLook == 0 {
				if err := extend(); err != nil {
					return err
				}
			}
		}
		if _, err := reader.Close(); err != nil {
			return err
		}
	}
}

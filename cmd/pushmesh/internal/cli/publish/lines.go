package publish

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

const (
	// linesAhead is how many lines may wait for their answers.
	linesAhead = 256
	// maxLine is above every payload that a mesh takes by default.
	maxLine = 1 << 20
)

// line is one line on its way.
type line struct {
	n      int
	answer chan lineAnswer // takes one answer without blocking the producer
}

type lineAnswer struct {
	result pushmesh.Result
	err    error
}

// publishLines pipelines: one goroutine reads and publishes, this one prints the answers in the
// order of the lines. The first refusal ends it.
func (c *Command) publishLines(ctx context.Context, in io.Reader, out io.Writer, headers map[string]string) error {
	dial, err := c.DialOptions()
	if err != nil {
		return err
	}
	producer, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: c.Router, DialOptions: dial})
	if err != nil {
		return cmdline.Usage("%w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan line, linesAhead)
	read := make(chan error, 1)
	// It may still wait for a line of a terminal when the command ends; nothing of it is waited for
	// then.
	go func() {
		defer close(sent)
		read <- c.readLines(ctx, in, producer, sent, headers)
	}()
	err = c.printAnswers(ctx, sent, out)
	if err == nil {
		err = <-read
	}
	cancel()
	return errors.Join(err, closeProducer(producer, err))
}

// closeProducer closes; what it left unanswered is worth telling only where nothing else went
// wrong.
func closeProducer(p *pushmesh.Producer, before error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := p.Close(ctx); before == nil {
		return err
	}
	return nil
}

func (c *Command) readLines(ctx context.Context, in io.Reader, p *pushmesh.Producer, sent chan<- line, headers map[string]string) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 4<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		l := line{n, make(chan lineAnswer, 1)}
		err := p.PublishAsync(ctx, pushmesh.Message{
			Topic: c.Topic, Payload: append([]byte(nil), lines.Bytes()...), Headers: headers, TTL: c.TTL, Priority: c.Priority, DeliverAt: c.deliverAt(), Features: c.features,
		}, func(r pushmesh.Result, err error) { l.answer <- lineAnswer{r, err} })
		if err != nil {
			return err
		}
		select {
		case sent <- l:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

func (c *Command) printAnswers(ctx context.Context, sent <-chan line, out io.Writer) error {
	for {
		var l line
		select {
		case next, more := <-sent:
			if !more {
				return nil
			}
			l = next
		case <-ctx.Done():
			return ctx.Err()
		}
		timer := time.NewTimer(c.Timeout)
		select {
		case a := <-l.answer:
			timer.Stop()
			if a.err != nil {
				return fmt.Errorf("line %d: %w", l.n, a.err)
			}
			if err := c.printResult(out, a.result); err != nil {
				return err
			}
		case <-timer.C:
			return fmt.Errorf("line %d: no answer in %s; it may have been published", l.n, c.Timeout)
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// Command pubcmd publishes for load generators of any origin: for every decimal number on a line of
// standard input it publishes that many messages to $PEERBENCH_TOPIC, each of $PEERBENCH_SIZE bytes
// (20 at least) that begin with @@TS and the time.
//
//	PEERBENCH_TOPIC=bench/1 PEERBENCH_SIZE=64 pubcmd 127.0.0.1:7401
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/pushmesh/pushmesh/test/load/publisher"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "pubcmd:", err)
		os.Exit(1)
	}
}

// most is how many messages one frame takes.
const most = 64

func run(ctx context.Context, args []string, in io.Reader, env func(string) string) error {
	if len(args) != 1 || env("PEERBENCH_TOPIC") == "" {
		return errors.New("usage: PEERBENCH_TOPIC=TOPIC PEERBENCH_SIZE=BYTES pubcmd ROUTER, counts on standard input")
	}
	size := 64
	if s := env("PEERBENCH_SIZE"); s != "" {
		var err error
		if size, err = strconv.Atoi(s); err != nil {
			return fmt.Errorf("PEERBENCH_SIZE: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, err := publisher.New(ctx, args[0], env("PEERBENCH_TOPIC"), max(size, publisher.StampSize))
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		n, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil || n < 0 {
			return errors.Join(fmt.Errorf("not a count: %q", lines.Text()), p.Close())
		}
		for ; n > 0; n -= most {
			if err := p.Publish(min(n, most)); err != nil {
				return errors.Join(err, p.Close())
			}
		}
	}
	return errors.Join(lines.Err(), p.Wait(ctx), p.Close())
}

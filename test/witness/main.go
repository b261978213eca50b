// Command witness publishes and subscribes through a mesh that others disturb, and says what each
// disturbance cost. It reads commands from its standard input, a line each:
//
//	window   the longest gaps since the last such command, and begins anew
//	end      publishes no more, waits for what was acknowledged, and judges
//
// It fails if a message that was acknowledged does not arrive, or one arrives out of order.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/test/closing"
)

func main() {
	router := flag.String("router", "127.0.0.1:7401", "address of producers")
	edge := flag.String("edge", "127.0.0.1:7400", "address of subscribers")
	topics := flag.Int("topics", 4, "topics, each with a producer and a subscriber")
	every := flag.Duration("every", 20*time.Millisecond, "time between two messages of a topic")
	patience := flag.Duration("patience", time.Minute, "how long what was acknowledged may take to arrive")
	flag.Parse()
	if err := run(*router, *edge, *topics, *every, *patience, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run(router, edge string, topics int, every, patience time.Duration, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	prefix := "room/witness-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	ledgers := make([]*ledger, topics)
	ended := make(chan struct{})
	for i := range ledgers {
		l := newLedger(fmt.Sprintf("%s/%d", prefix, i))
		ledgers[i] = l
		sub, err := l.subscribe(ctx, edge)
		if err != nil {
			return err
		}
		defer func() { _ = closing.Close(sub) }()
		p, err := pushmesh.NewProducer(pushmesh.ProducerConfig{Addrs: []string{router}})
		if err != nil {
			return err
		}
		defer func() { _ = closing.Close(p) }()
		go l.publish(ctx, p, every, ended)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch lines.Text() {
		case "window":
			var publish, deliver time.Duration
			for _, l := range ledgers {
				p, d := l.window()
				publish, deliver = max(publish, p), max(deliver, d)
			}
			fmt.Fprintf(out, "publish %.2f s deliver %.2f s\n", publish.Seconds(), deliver.Seconds())
		case "end":
			close(ended)
			return judge(ledgers, patience, out)
		default:
			return fmt.Errorf("unknown command %q", lines.Text())
		}
	}
	return errors.Join(lines.Err(), errors.New("the input ended without the command end"))
}

func judge(ledgers []*ledger, patience time.Duration, out io.Writer) error {
	deadline := time.After(patience)
	var acknowledged, arrived, unknown int
	var faults []error
	for _, l := range ledgers {
		select {
		case <-l.complete():
		case <-deadline:
		}
		a, d, u, err := l.judge()
		acknowledged, arrived, unknown = acknowledged+a, arrived+d, unknown+u
		faults = append(faults, err)
	}
	fmt.Fprintf(out, "acknowledged %d, arrived %d, of unknown outcome %d\n", acknowledged, arrived, unknown)
	return errors.Join(faults...)
}

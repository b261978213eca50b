package subscribe

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/client/pushmesh"
	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/events"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

// Events is the command pushmesh events.
type Events struct {
	Kinds   []string      `arg:"" optional:"" name:"kind" help:"Kinds of events, or filters below $$events: connect, disconnect, subscribe/room and so on; all by default."`
	Count   uint64        `placeholder:"N" help:"End after N events."`
	Timeout time.Duration `placeholder:"D" help:"End after this time; exit code 3 if --count was not reached."`
	cmdline.RouterFlag
}

// Help of the command.
func (Events) Help() string {
	return `Prints each event from now on as a line of JSON (pushmesh.v1.Event).

  pushmesh events
  pushmesh events connect disconnect
  pushmesh events subscribe/room --count 10`
}

// filters of topics that the kinds stand for.
func (c *Events) filters() (all []string) {
	if len(c.Kinds) == 0 {
		return []string{events.Root + "/#"}
	}
	for _, k := range c.Kinds {
		if !strings.Contains(k, "/") && k != "#" && k != "+" {
			k += "/#"
		}
		all = append(all, events.Root+"/"+k)
	}
	return all
}

// Run is `sub --grpc` for the topics of events.
func (c *Events) Run(ctx context.Context, stdio cmdline.IO) error {
	for _, f := range c.filters() {
		if events.KindsOf(f) == 0 {
			return cmdline.Usage("%s is not a kind of events (pushmesh events --help lists them)", strings.TrimPrefix(f, events.Root+"/"))
		}
	}
	sub := &Command{Filters: c.filters(), GRPC: true, Count: c.Count, Timeout: c.Timeout, RouterFlag: c.RouterFlag, show: showEvent}
	return sub.Run(ctx, stdio)
}

// showEvent prints the event that a message holds.
func showEvent(w io.Writer, d *pushmesh.Delivery) error {
	e := &pushmeshv1.Event{}
	if err := proto.Unmarshal(d.Payload, e); err != nil {
		return fmt.Errorf("%s: %w", d.Topic, err)
	}
	line, err := protojson.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

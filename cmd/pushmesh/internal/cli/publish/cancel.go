package publish

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

type Cancel struct {
	ID []string `arg:"" help:"Message id, as pub printed it."`
	cmdline.RouterFlag
}

func (Cancel) Help() string {
	return `Exit code 0: none of them will be delivered. Exit code 1: one was delivered already (CONFLICT), or there is no such message.

  pushmesh cancel 0198f0c2-1c2b-7d3e-8f4a-5b6c7d8e9f00`
}

// Run cancels one after the other.
func (c *Cancel) Run(ctx context.Context, _ cmdline.IO) error {
	var ids [][]byte
	for _, text := range c.ID {
		id, err := uuid.Parse(text)
		if err != nil {
			return cmdline.Usage("message id %q: %v", text, err)
		}
		ids = append(ids, id[:])
	}
	return cmdline.Call(ctx, c.RouterFlag, cmdline.CallTimeout, pushmeshv1.NewPublishServiceClient, func(ctx context.Context, api pushmeshv1.PublishServiceClient) error {
		var errs []error
		for _, id := range ids {
			_, err := api.CancelScheduled(ctx, &pushmeshv1.CancelScheduledRequest{MessageId: id})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

package storeclient

import (
	"context"
	"fmt"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// CancelScheduled asks every owner: the one of the message's shard cancels it. filters match the
// topics that the caller may withdraw from; nil: all. nil: it will not be delivered. CONFLICT: it
// was already. NOT_FOUND: no store knows it, or its topic is another one. UNAVAILABLE, retryable:
// its shard has no owner now.
func (c *Client) CancelScheduled(ctx context.Context, messageID []byte, filters []string) error {
	resps, err := everywhere(c, func(stub meshv1.StoreServiceClient) (*meshv1.StoreServiceCancelScheduledResponse, error) {
		return stub.CancelScheduled(ctx, &meshv1.StoreServiceCancelScheduledRequest{MessageId: messageID, Restricted: filters != nil, Filters: filters})
	})
	if err != nil {
		return err
	}
	ownerless := false
	for _, r := range resps {
		switch r.GetCode() {
		case wirev1.Code_CODE_OK:
			return nil
		case wirev1.Code_CODE_CONFLICT:
			return code.New(wirev1.Code_CODE_CONFLICT, fmt.Sprintf("it was delivered already, with seq %d", r.GetSeq()))
		case wirev1.Code_CODE_UNAVAILABLE:
			ownerless = true
		}
	}
	if ownerless {
		c.Refresh()
		return code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "the message's shard has no owner now")
	}
	return code.New(wirev1.Code_CODE_NOT_FOUND, "no scheduled message that you may withdraw has this id")
}

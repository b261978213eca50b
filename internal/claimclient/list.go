package claimclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/topic"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Places of a page of List.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// List tells who holds and waits, of one resource or of all that begin with a prefix: a page from
// one owner of shards after the other. Its errors are code.Error.
func (c *Client) List(ctx context.Context, req *pushmeshv1.ClaimServiceListRequest) (*pushmeshv1.ClaimServiceListResponse, error) {
	shard, after, err := parseToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	one := req.GetResource() != ""
	if one {
		shard = topic.Shard(req.GetResource())
	}
	limit := int(min(cmp.Or(req.GetLimit(), DefaultPage), MaxPage))
	out := &pushmeshv1.ClaimServiceListResponse{}
	for shard < topic.Shards && len(out.GetPlaces()) < limit {
		resp, err := c.page(ctx, shard, &meshv1.StoreServiceListClaimsRequest{
			Resource: req.GetResource(), Prefix: req.GetPrefix(), Shard: uint32(shard), After: after, Limit: uint32(limit - len(out.GetPlaces())),
		})
		if err != nil {
			return nil, code.From(err)
		}
		out.Places = append(out.Places, resp.GetPlaces()...)
		after = resp.GetAfter()
		switch next := int(resp.GetNextShard()); {
		case one && len(after) == 0:
			shard = topic.Shards
		case one:
		case next < shard || next == shard && len(after) == 0:
			return nil, code.New(wirev1.Code_CODE_INTERNAL, "the store's answer does not continue its list")
		default:
			shard = next
		}
	}
	if shard < topic.Shards {
		out.NextPageToken = pageToken(shard, after)
	}
	return out, nil
}

// page asks the shard's owner, and once more where that has changed.
func (c *Client) page(ctx context.Context, shard int, req *meshv1.StoreServiceListClaimsRequest) (*meshv1.StoreServiceListClaimsResponse, error) {
	ask := func() (*meshv1.StoreServiceListClaimsResponse, error) {
		_, stub, err := c.cfg.Stores.Owner(shard)
		if err != nil {
			return nil, err
		}
		return stub.ListClaims(ctx, req)
	}
	resp, err := ask()
	if code.Of(err) != wirev1.Code_CODE_CONFLICT {
		return resp, err
	}
	if err := c.cfg.Stores.Refreshed(ctx); err != nil {
		return nil, err
	}
	if resp, err = ask(); code.Of(err) == wirev1.Code_CODE_CONFLICT {
		return nil, code.Retry(wirev1.Code_CODE_UNAVAILABLE, retryAfter, "a shard is changing its owner")
	}
	return resp, err
}

func pageToken(shard int, after []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.AppendUvarint(nil, uint64(shard)), after...))
}

func parseToken(token string) (shard int, after []byte, err error) {
	if token == "" {
		return 0, nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	first, n := binary.Uvarint(raw)
	if err != nil || n <= 0 || first >= topic.Shards {
		return 0, nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "page_token is not one that an earlier answer had")
	}
	return int(first), raw[n:], nil
}

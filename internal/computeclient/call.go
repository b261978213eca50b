package computeclient

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/meshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// call is a job with its deadline. It may be asked of several nodes, one after the other.
type call struct {
	request  *meshv1.RankJobRequest
	size     int // bytes
	deadline time.Time
}

func newCall(ctx context.Context, job *meshv1.RankJobRequest, caller string) (*call, error) {
	c := &call{request: &meshv1.RankJobRequest{Caller: caller, Rank: job.GetRank(), Profiles: job.GetProfiles(), TimeoutUs: job.GetTimeoutUs()}}
	if job.GetCaller() != "" {
		c.request.Caller = job.GetCaller()
	}
	if c.size = proto.Size(c.request); c.size > MaxMessage-1024 {
		return nil, code.New(wirev1.Code_CODE_INVALID_ARGUMENT, "the ranking is larger than 64 MiB")
	}
	c.deadline, _ = ctx.Deadline()
	return c, nil
}

// job is what to send now: the time that is left goes with it.
func (c *call) job(now time.Time) *meshv1.RankJobRequest {
	if c.deadline.IsZero() {
		return c.request
	}
	left := uint64(max(c.deadline.Sub(now).Microseconds(), 1))
	us := c.request.GetTimeoutUs()
	if us == 0 || us > left {
		us = left
	}
	return &meshv1.RankJobRequest{Caller: c.request.GetCaller(), Rank: c.request.GetRank(), Profiles: c.request.GetProfiles(), TimeoutUs: us}
}

// large jobs go alone, so that small ones don't wait behind their bytes.
func (c *call) large() bool { return c.size > maxBatch }

package code

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Every code survives the way through a gRPC status.
func TestRoundTrip(t *testing.T) {
	for n := range wirev1.Code_name {
		c := wirev1.Code(n)
		if c == wirev1.Code_CODE_OK {
			continue
		}
		err := status.FromProto(Retry(c, time.Second, "why").GRPCStatus().Proto()).Err()
		got := From(fmt.Errorf("call: %w", err))
		if got.Code != c || got.RetryAfter != time.Second {
			t.Errorf("%v came back as %v after %v", c, got.Code, got.RetryAfter)
		}
	}
}

func TestFromForeignErrors(t *testing.T) {
	if Of(nil) != wirev1.Code_CODE_OK {
		t.Error("nil is not OK")
	}
	if Of(errors.New("x")) != wirev1.Code_CODE_INTERNAL {
		t.Error("a plain error is not INTERNAL")
	}
	if Of(status.Error(codes.Unavailable, "x")) != wirev1.Code_CODE_UNAVAILABLE {
		t.Error("Unavailable is not UNAVAILABLE")
	}
}

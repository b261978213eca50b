// Package status finds the mesh's reason in the error of a gRPC call.
package status

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// Of is the reason, for people, too, and when trying again may help (0: it does not say). The code
// of google.rpc.ErrorInfo wins over the status's; what is no status is UNAVAILABLE.
func Of(err error) (c wirev1.Code, message string, retryAfter time.Duration) {
	st, ok := status.FromError(err)
	if !ok {
		return wirev1.Code_CODE_UNAVAILABLE, err.Error(), 0
	}
	c = fromGRPC(st.Code())
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if named, ok := wirev1.Code_value["CODE_"+d.GetReason()]; ok {
				c = wirev1.Code(named)
			}
		case *errdetails.RetryInfo:
			retryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	return c, st.Message(), retryAfter
}

func fromGRPC(c codes.Code) wirev1.Code {
	switch c {
	case codes.InvalidArgument, codes.OutOfRange:
		return wirev1.Code_CODE_INVALID_ARGUMENT
	case codes.Unauthenticated:
		return wirev1.Code_CODE_UNAUTHENTICATED
	case codes.PermissionDenied:
		return wirev1.Code_CODE_FORBIDDEN
	case codes.Unimplemented:
		return wirev1.Code_CODE_UNSUPPORTED
	case codes.ResourceExhausted:
		return wirev1.Code_CODE_OVERLOADED
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return wirev1.Code_CODE_INTERNAL
	}
	return wirev1.Code_CODE_UNAVAILABLE
}

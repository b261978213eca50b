package suite

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial connects to a router or a store without TLS.
func Dial(addr string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
}

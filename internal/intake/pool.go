package intake

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
)

const (
	// window is what a stream may send before somebody reads it, in bytes. A message that is longer
	// gets what it needs as soon as it is read.
	window = 1 << 20
	// connWindow of a connection. What lies in streams' buffers does not count for it.
	connWindow = 4 << 20
)

// ServerOptions of a server whose services are registered Around the budget.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxRequest), grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(connWindow),
		experimental.BufferPool(buffers()),
	}
}

// buffers is a pool whose buffers have sizes that are powers of two: gRPC's own pool puts 4,100
// bytes into 16 KiB, so that a window of such frames takes four times what it holds.
func buffers() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(fmt.Sprint("sizes of buffers: ", err)) // they are constants
	}
	return pool
}

//go:build race

package rawconn

// detecting: the race detector learns from package syscall alone what two goroutines tell each
// other over a socket.
const detecting = true

package local

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Main is the main function of a benchmark that starts processes: run, until it is done or
// interrupted. What went wrong is said, and the program ends with 1. It must be called by the main
// goroutine.
func Main(name string, run func(ctx context.Context, args []string) error) {
	// Children end with the thread that started them, which therefore is the one that lives as long
	// as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

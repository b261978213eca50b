package router

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// A router that was stopped leaves no goroutine behind.
func TestMain(m *testing.M) {
	exit := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if exit == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1")); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			exit = 1
		}
	}
	os.Exit(exit)
}

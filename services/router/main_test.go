package router

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pushmesh/pushmesh/internal/leaks"
)

// A router that was stopped leaves no goroutine behind.
func TestMain(m *testing.M) {
	exit := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if exit == 0 {
		if err := leaks.Find(goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1")); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			exit = 1
		}
	}
	os.Exit(exit)
}

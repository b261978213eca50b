package leaks

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func TestFindWaitsForWhatIsAboutToEnd(t *testing.T) {
	before := goleak.IgnoreCurrent()
	end := make(chan struct{})
	go func() { <-end }()
	if goleak.Find(before) == nil {
		t.Fatal("goleak finds nothing")
	}
	go close(end)
	if err := Find(before); err != nil {
		t.Fatal(err)
	}
}

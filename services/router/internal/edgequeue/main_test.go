package edgequeue

import (
	"os"
	"testing"

	"github.com/pushmesh/pushmesh/internal/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

package appender

import (
	"testing"

	"github.com/pushmesh/pushmesh/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

package python

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/test/sdk/play"
	"github.com/pushmesh/pushmesh/test/sdk/scenes"
)

// The Python client passes every scene, by TCP and by WebSocket, and is without nothing.
func TestThePythonClientPassesAllScenes(t *testing.T) {
	from, err := filepath.Abs(filepath.Join(sdk, "src"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", from)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	all, err := play.Load(scenes.Files)
	if err != nil {
		t.Fatal(err)
	}
	results := play.Suite{Scenes: all, Transports: []string{"tcp", "websocket"}, Program: []string{interpreter, "scenes.py"}, Parallel: 4}.Play()
	if len(results) < len(all) {
		t.Fatalf("%d results of %d scenes", len(results), len(all))
	}
	for _, r := range results {
		switch {
		case r.Err != nil:
			t.Errorf("%s by %s: %v\n%s", r.Scene.Name, r.Transport, r.Err, strings.Join(r.Story, "\n"))
		case r.Without != "":
			t.Errorf("%s by %s: it is without %s", r.Scene.Name, r.Transport, r.Without)
		}
	}
}

package settings

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// running are the settings of a process that runs.
type running struct {
	Listen string   `default:"a:1"`
	Level  string   `live:"" default:"info" enum:"debug,info"`
	Ratio  float64  `live:"" default:"0.5"`
	Peers  []string `name:"peer"`
	Secret string   `secret:""`
	From   string   `name:"secret-file" fileof:"secret"`
}

func (r *running) Check() error { return Require("listen", r.Listen) }

// What can change while a process runs does, what can't is named, and a fault changes nothing.
func TestSettingsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	path, secret := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "secret")
	put := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(secret, "one\n")
	put(path, "listen: b:2\npeer: [x, y]\nsecret-file: "+secret)
	args := []string{"--config", path, "--ratio", "0.25"}
	var now running
	if err := Parse(&now, "node", "", args, io.Discard); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	var taken running
	hangUp := OnHangUp(&now, "node", args, slog.New(slog.NewTextHandler(&said, nil)), func(s *running) { taken = *s })
	for _, step := range []struct {
		file, level string
		want        []string
		not         string
	}{
		{"listen: b:2\npeer: [x, y]\nsecret-file: " + secret, "info", []string{"level=INFO", "nothing has changed"}, ""},
		{"level: debug\nlisten: b:2\npeer: [x, y]\nratio: 1\nsecret-file: " + secret, "debug", []string{"level=INFO", "changed=level\n"}, "restart"},
		{"level: debug\nlisten: b:2\npeer: [x, y]\nsecret-file: " + secret, "debug", []string{"nothing has changed"}, "restart"},
		{"level: info\npeer: [x]\nsecret-file: " + secret, "info", []string{"level=WARN", "changed=level ", "need_restart=listen,peer\n"}, "secret"},
		{"level: nonsense\npeer: [x]\nlisten: c:3", "info", []string{"level=ERROR", "node.yaml:1", "nothing has changed"}, "restart"},
		{"levels: debug", "info", []string{"level=ERROR", "did you mean level?"}, ""},
	} {
		put(path, step.file)
		said.Reset()
		hangUp()
		for _, want := range step.want {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%q: log has no %q: %s", step.file, want, said.String())
			}
		}
		if step.not != "" && strings.Contains(said.String(), step.not) {
			t.Errorf("%q: log has %q: %s", step.file, step.not, said.String())
		}
		if now.Level != step.level || taken.Level != step.level || now.Ratio != 0.25 || now.Listen != "b:2" {
			t.Errorf("%q: %+v, taken %+v", step.file, now, taken)
		}
	}
	said.Reset()
	put(path, "peer: [x, y]\nratio: postgres://u:hunter2@h/d")
	OnHangUp(&now, "node", args[:2], slog.New(slog.NewTextHandler(&said, nil)), func(*running) {})()
	if !strings.Contains(said.String(), "level=ERROR") || strings.Contains(said.String(), "hunter2") {
		t.Errorf("a fault in a secret's place: %s", said.String())
	}
	put(secret, "two")
	put(path, "listen: b:2\npeer: [x, y]\nsecret-file: "+secret)
	said.Reset()
	hangUp()
	if !strings.Contains(said.String(), "need_restart=secret\n") || strings.Contains(said.String(), "two") {
		t.Errorf("another secret: %s", said.String())
	}
}

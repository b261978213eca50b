package settings

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	revision := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: modified}}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"devel":         {},
		"v1.2.3":        {Main: debug.Module{Version: "v1.2.3"}, Settings: revision("true")},
		"0123456789ab":  {Main: debug.Module{Version: "(devel)"}, Settings: revision("false")},
		"0123456789ab+": {Settings: revision("true")},
	} {
		if got := version(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if Version() == "" {
		t.Error("a program has no version")
	}
}

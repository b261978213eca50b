package settings

import (
	"runtime/debug"
	"sync"
)

// Of a release, which says so when it is linked (scripts/release).
var released, commit string

// Version of the program, as its build carries it: that of the release or of its module, or else
// the revision it was built from (12 digits, "+" where the tree was changed since), or else
// "devel".
var Version = sync.OnceValue(func() string {
	if released != "" {
		return released
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	return version(info)
})

func version(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	if revision == "" {
		return "devel"
	}
	return revision + changed
}

// Commit is what the program was built from, 40 digits; "": its build does not say.
func Commit() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

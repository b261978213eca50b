package operate

import (
	"fmt"
	"runtime/debug"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
)

type Version struct{}

func (Version) Help() string {
	return "Prints the version, the revision that it was built from, and the version of Go.\n\n  pushmesh version"
}

// Run prints the version that the build carries.
func (Version) Run(stdio cmdline.IO) error {
	version, revision, goVersion := "devel", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		if v := info.Main.Version; v != "" && v != "(devel)" {
			version = v
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintf(stdio.Out, "pushmesh %s%s %s\n", version, revision, goVersion)
	return err
}

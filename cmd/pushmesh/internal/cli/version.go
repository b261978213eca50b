package cli

import (
	"fmt"
	"runtime/debug"
)

type versionCmd struct{}

func (versionCmd) Help() string {
	return "Prints the version, the revision that it was built from, and the version of Go.\n\n  pushmesh version"
}

// Run prints the version that the build carries.
func (versionCmd) Run(stdio stdio) error {
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
	_, err := fmt.Fprintf(stdio.out, "pushmesh %s%s %s\n", version, revision, goVersion)
	return err
}

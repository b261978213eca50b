package operate

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/cmdline"
	"github.com/pushmesh/pushmesh/internal/settings"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// Version is the command pushmesh version.
type Version struct{}

// Help of the command.
func (Version) Help() string {
	return "Prints the version, the commit that it was built from, the version of Go, and the version of the protocol for subscribers.\n\n  pushmesh version"
}

// Run prints the version that the build carries.
func (Version) Run(stdio cmdline.IO) error {
	_, err := fmt.Fprintf(stdio.Out, "pushmesh %s\ncommit %s\ngo %s %s/%s\nwire protocol %d\n",
		settings.Version(), cmp.Or(settings.Commit(), "not known"), runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.Version)
	return err
}

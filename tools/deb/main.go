// Command deb makes a Debian package of what an nfpm file describes
// (https://nfpm.goreleaser.com/docs/configuration), of which the command nfpm itself also makes
// other kinds, with modules that can't be had everywhere:
//
//	deb nfpm.yaml OUT.deb
//
// Variables of the environment stand for their values in the file. The time of all files is
// SOURCE_DATE_EPOCH.
package main

import (
	"fmt"
	"os"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: deb nfpm.yaml OUT.deb")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func run(config, out string) (err error) {
	all, err := nfpm.ParseFileWithEnvMapping(config, os.Getenv)
	if err != nil {
		return err
	}
	info, err := all.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	if err := deb.Default.Package(info, f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

package procmesh

import (
	"path/filepath"
	"testing"
)

// Dev is `pushmesh dev`: a whole mesh in one process, which keeps its database over restarts.
type Dev struct {
	*Process
	Edge, Router string // where clients connect to
	Playground   string // the page's URL
}

// StartDev builds what is missing, starts one and waits until its router is ready.
func StartDev(t testing.TB) *Dev {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	d := &Dev{Edge: freeAddr(t), Router: freeAddr(t)}
	http, page := freeAddr(t), freeAddr(t)
	d.Playground = "http://" + page + "/"
	d.Process = &Process{Name: "dev", HTTP: http, Path: filepath.Join(bin, "pushmesh"), Log: filepath.Join(t.TempDir(), "dev.log"), Tied: true, Args: []string{
		"dev", "--data", t.TempDir(), "--ports-from", "0", "--edge-listen", d.Edge, "--router-listen", d.Router, "--router-http", http, "--playground-listen", page,
	}}
	ends(t, d.Process)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	Await(t, "dev is ready", func() bool {
		status, _ := d.Status()
		return status == 200
	})
	return d
}

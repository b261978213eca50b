package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pushmesh/pushmesh/internal/pgserver"
)

// entrypoint runs the container's for a cluster without the role pushmesh, which no postmaster can
// serve.
func entrypoint(t *testing.T, password string) (passfile, said string) {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if os.Getuid() != 0 || len(bins) == 0 {
		t.Skip("it takes root, and Postgres in Debian's place")
	}
	dir, err := pgserver.TempDir("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, passfile := filepath.Join(dir, "data"), filepath.Join(dir, "secrets", "pgpass")
	script, err := filepath.Abs("../../deploy/compose/postgres-entrypoint")
	if err != nil {
		t.Fatal(err)
	}
	made := exec.CommandContext(t.Context(), "setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", bins[len(bins)-1], "-D", data, "-U", "other", "-A", "trust", "--no-sync")
	made.Dir = dir
	if out, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	conf, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conf.WriteString("ssl = on\n") // without a certificate
	if err := errors.Join(err, conf.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PGDATA="+data, "PASSFILE="+passfile, "POSTGRES_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("it serves: %s", out)
	}
	return passfile, string(out)
}

// A password that the cluster did not learn is not told to stores: the next start would take it for
// the one that is known.
func TestAPasswordThatIsNotLearntIsNotTold(t *testing.T) {
	passfile, said := entrypoint(t, "new")
	if _, err := os.Stat(passfile); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(said, "does not exist") {
		t.Errorf("the file is there, %v: %s", err, said)
	}
}

// What stores can't read from the file is refused.
func TestPasswordsThatTheFileCanNotHold(t *testing.T) {
	for _, password := range []string{"two\nlines", "blank ", "return\r"} {
		if _, said := entrypoint(t, password); !strings.Contains(said, "must be one line") {
			t.Errorf("%q: %s", password, said)
		}
	}
}

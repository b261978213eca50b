package pgtest

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PGDATA="+data, "PASSFILE="+passfile, "OWNER_PASSFILE="+filepath.Join(dir, "owner", "pgpass"), "POSTGRES_PASSWORD="+password)
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

// cluster is what the container's entrypoint serves.
type cluster struct {
	t              *testing.T
	dir            string
	stores, owners string // files of passwords
	port           string
}

// during runs the entrypoint for as long as f.
func (c *cluster) during(env []string, f func()) {
	c.t.Helper()
	script, err := filepath.Abs("../../deploy/compose/postgres-entrypoint")
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), "sh", script, "-p", c.port, "-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	cmd.Dir = c.dir
	cmd.Env = append(append(os.Environ(), "PGDATA="+filepath.Join(c.dir, "data"), "PASSFILE="+c.stores, "OWNER_PASSFILE="+c.owners), env...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ready := time.NewTicker(50 * time.Millisecond)
	defer ready.Stop()
	for c.try(c.owners, "pushmesh", "SELECT 1") != nil {
		select {
		case <-ready.C:
		case err := <-ended:
			c.t.Fatalf("it ends: %v: %s", err, said.String())
		}
	}
	f()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		c.t.Fatal(err)
	}
	if err := <-ended; err != nil {
		c.t.Fatalf("%v: %s", err, said.String())
	}
}

// try runs a statement as a role, with the password that a file has.
func (c *cluster) try(passfile, role, sql string) error {
	conn, err := pgx.Connect(c.t.Context(), "postgres://"+role+"@127.0.0.1:"+c.port+"/pushmesh?sslmode=disable&passfile="+passfile)
	if err != nil {
		return err
	}
	_, err = conn.Exec(c.t.Context(), sql)
	return errors.Join(err, conn.Close(c.t.Context()))
}

// The owner and the stores have roles and files of their own, which no other user reads. A restart
// changes neither password, a new one for the owner changes that alone, and a cluster from before
// there were two roles, whose file stores read, gets the second.
func TestTheEntrypointMakesTwoRoles(t *testing.T) {
	if bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); os.Getuid() != 0 || len(bins) == 0 {
		t.Skip("it takes root, and Postgres in Debian's place")
	}
	dir, err := pgserver.TempDir("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, dir: dir, port: port, stores: filepath.Join(dir, "secrets", "pgpass"), owners: filepath.Join(dir, "owner", "pgpass")}
	read := func(file, role string) string {
		t.Helper()
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if uid := info.Sys().(*syscall.Stat_t).Uid; info.Mode().Perm() != 0o600 || uid != 65532 {
			t.Errorf("%s is %o of %d", file, info.Mode().Perm(), uid)
		}
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), "*:*:*:"+role+":") {
			t.Errorf("%s is not %s's, %v", file, role, err)
		}
		return string(line)
	}
	works := func() (stores, owners string) {
		t.Helper()
		if err := c.try(c.stores, "pushmesh_store", "SELECT 1"); err != nil {
			t.Errorf("as stores: %v", err)
		}
		for _, sql := range []string{"CREATE TABLE public.mine (x int)", "CREATE SCHEMA mine", "DROP DATABASE pushmesh", "CREATE ROLE mine", "SET ROLE pushmesh"} {
			if c.try(c.stores, "pushmesh_store", sql) == nil {
				t.Errorf("stores may %s", sql)
			}
		}
		if c.try(c.stores, "pushmesh", "SELECT 1") == nil {
			t.Error("the stores' password is the owner's")
		}
		return read(c.stores, "pushmesh_store"), read(c.owners, "pushmesh")
	}
	var stores, owners string
	c.during(nil, func() { stores, owners = works() })
	c.during(nil, func() {
		if s, o := works(); s != stores || o != owners {
			t.Error("a restart changes passwords")
		}
	})
	c.during([]string{"POSTGRES_PASSWORD=it's a: \\ one"}, func() {
		if s, o := works(); s != stores || o == owners {
			t.Error("a new password of the owner's is not the one, or changes that of stores")
		}
	})
	// As it was before.
	if err := os.Rename(c.owners, c.stores); err != nil {
		t.Fatal(err)
	}
	c.during(nil, func() {
		if s, _ := works(); s == stores {
			t.Error("stores have a password that nobody knew any more")
		}
	})
}

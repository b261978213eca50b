package helm

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/services/store"
)

// The example's roles are those that the schema's Job and the stores need. Its script is read by
// the image's entrypoint into its own shell, which goes on after it.
func TestThePostgresExampleMakesRolesThatWork(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", "helm", "examples", "postgres.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Objects(text)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "roles.sh")
	if err := os.WriteFile(script, []byte(Find(objects, "ConfigMap", "postgres-init").Text("data", "roles.sh")), 0o600); err != nil {
		t.Fatal(err)
	}
	server := pgtest.New(t)
	admin, err := url.Parse(server.Superuser())
	if err != nil {
		t.Fatal(err)
	}
	port := admin.Port()
	// As docker-entrypoint.sh has it.
	command := exec.Command("bash", "-c", `set -Eeo pipefail; . "$1"; : "$NOBODY_SET_THIS"; echo and on`, "entrypoint", script)
	command.Env = append(os.Environ(), "PGHOST=127.0.0.1", "PGPORT="+port, "OWNER_PASSWORD=it's one", `STORE_PASSWORD=a "b" \c`)
	if out, err := command.CombinedOutput(); err != nil || string(out) != "CREATE ROLE\nCREATE ROLE\nCREATE DATABASE\nand on\n" {
		t.Fatalf("the script: %v\n%s", err, out)
	}
	if n := pgtest.Exec(t, server.Superuser(), `SELECT 1 FROM pg_authid WHERE rolname IN ('pushmesh', 'pushmesh_store') AND rolpassword IS NOT NULL
		AND NOT (rolsuper OR rolcreatedb OR rolcreaterole)`); n != 2 {
		t.Errorf("%d roles with a password, and with no right that they need not have", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	as := func(role string) string {
		return "postgres://" + role + "@127.0.0.1:" + port + "/pushmesh?sslmode=disable"
	}
	if err := store.Migrate(ctx, store.Settings{DB: as("pushmesh_store"), DBOwner: as("pushmesh"), MigrateOnly: true, LogLevel: "error"}); err != nil {
		t.Errorf("the Job: %v", err)
	}
}

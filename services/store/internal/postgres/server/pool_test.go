package server

import (
	"os"
	"path/filepath"
	"testing"
)

// A password that changes in its file is the one of the next connection, in the pool and beside it.
func TestThePasswordIsThatOfTheFileByNow(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(line string) {
		if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("*:*:*:pushmesh:old\n")
	cfg := Config{URL: "postgres://pushmesh@127.0.0.1/pushmesh?passfile=" + file, Pool: Pool{}.withDefaults()}
	pool, err := poolConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Config: cfg, conns: pool.ConnConfig.Copy()}
	for _, step := range []struct{ line, want string }{
		// none: what it knew
		{"*:*:*:pushmesh:old\n", "old"}, {"*:*:*:pushmesh:n\\:w\n", "n:w"}, {"", "old"},
	} {
		write(step.line)
		c := pool.ConnConfig.Copy()
		if err := pool.BeforeConnect(t.Context(), c); err != nil || c.Password != step.want {
			t.Errorf("%q: the pool connects with %q, %v", step.line, c.Password, err)
		}
		if c := s.fresh(); c.Password != step.want {
			t.Errorf("%q: a connection has %q", step.line, c.Password)
		}
	}
}

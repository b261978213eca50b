package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/pushmesh/pushmesh/internal/grpcserve"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
)

// listening is a port as a router's that answers nothing, and notes what calls show.
type listening struct {
	*grpcserve.Server
	mu    sync.Mutex
	shown []string
}

func listen(t *testing.T) *listening {
	t.Helper()
	l := &listening{}
	var err error
	if l.Server, err = grpcserve.Listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	note := func(_ any, s grpc.ServerStream) error {
		values := metadata.ValueFromIncomingContext(s.Context(), "authorization")
		l.mu.Lock()
		l.shown = append(l.shown, strings.Join(values, " and "))
		l.mu.Unlock()
		return status.Error(codes.PermissionDenied, "noted")
	}
	l.Serve(grpcserve.Config{MinPing: time.Second, Register: func(grpc.ServiceRegistrar) {}, Options: []grpc.ServerOption{grpc.UnknownServiceHandler(note)}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

// take returns what calls have shown, each once, since it was taken last.
func (l *listening) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.shown
	l.shown = nil
	slices.Sort(all)
	return slices.Compact(all)
}

// Every command that calls a router shows it the key of the flags, of a variable or of a context,
// and not the token for edges.
func TestCommandsShowRoutersTheirKey(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	l, dir := listen(t), t.TempDir()
	file, user := filepath.Join(dir, "key"), filepath.Join(dir, "user")
	for path, text := range map[string]string{file: "of-file\n", user: "of-user\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(want string, command []string, flags ...string) {
		t.Helper()
		c := start(t, strings.NewReader("1 1:0.5\n"), slices.Concat(command, []string{"--router", l.Addr()}, flags)...)
		c.wait()
		if got := l.take(); !slices.Equal(got, []string{want}) {
			t.Errorf("%q %q shows %q, want %q: %s", command, flags, got, want, c.err.String())
		}
		if said := c.out.String() + c.err.String(); strings.Contains(said, "of-f") {
			t.Errorf("%q tells the key: %s", command, said)
		}
	}
	for _, command := range callers() {
		shows("", command)
		shows("Bearer of-file", command, "--router-token-file", file)
	}
	shows("Bearer of-flag", []string{"history", "a"}, "--router-token", "of-flag")
	shows("", []string{"doctor"}, "--token-file", user)
	must(t, "", "context", "add", "prod", "--router", l.Addr(), "--router-token-file", file)
	shows("Bearer of-file", []string{"history", "a"}, "--context", "prod")
	t.Setenv("PUSHMESH_ROUTER_TOKEN", "of-variable")
	shows("Bearer of-variable", []string{"history", "a"})
	for want, args := range map[string][]string{
		"needs a file":               {"history", "a", "--router-token-file", "-"},
		"/nowhere":                   {"history", "a", "--router-token-file", "/nowhere"},
		"spaces, in it":              {"history", "a", "--router-token", "a b"},
		"contexts have names of fil": {"context", "add", "bad", "--router-token", "of-flag"},
	} {
		if c := ran(t, "", args...); c.code != 2 || !strings.Contains(c.err.String(), want) {
			t.Errorf("%q: exit code %d, %s", args, c.code, c.err.String())
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "backends.yaml")
	key := strings.TrimSpace(must(t, "", "key", "create", "--backends", file, "--name", "orders", "--role", "publisher:orders/#", "--role", "auditor", "--expires", "90d"))
	p, err := backends.ReadKey(key)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "", "key", "create", "--backends", file, "--name", "orders")
	all := must(t, "", "key", "list", "--backends", file)
	if strings.Count(all, "\n") != 2 || !strings.Contains(all, p.KeyID+"\torders\tgood\t") || !strings.Contains(all, "publisher:orders/# auditor") || strings.Contains(all, key) {
		t.Errorf("the list is %q", all)
	}
	if all := must(t, "", "key", "list", "--backends", file, "--format", "json"); !strings.Contains(all, `"id":"`+p.KeyID+`"`) {
		t.Errorf("the list is %q", all)
	}
	must(t, "", "key", "revoke", "--backends", file, p.KeyID)
	s, err := backends.Read(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Find(&p, time.Now()); err == nil {
		t.Error("a key that was revoked is good")
	}
	for want, args := range map[string][]string{
		"no key has this id":     {"key", "revoke", "--backends", file, p.KeyID},
		"is not there yet":       {"key", "create", "--backends", file, "--name", "new"},
		"is there already":       {"key", "create", "--backends", file, "--name", "orders", "--role", "operator"},
		"needs a filter":         {"key", "create", "--backends", file, "--name", "new", "--role", "publisher"},
		"above 0":                {"key", "create", "--backends", file, "--name", "new", "--role", "auditor", "--expires", "-1h"},
		"no such file":           {"key", "list", "--backends", file + "x"},
		"missing flags: --backe": {"key", "list"},
	} {
		if c := ran(t, "", args...); c.code == 0 || !strings.Contains(c.err.String(), want) {
			t.Errorf("%q: exit code %d, %s", args, c.code, c.err.String())
		}
	}
}

package e2e

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/pushmesh/pushmesh/internal/bus"
	"github.com/pushmesh/pushmesh/internal/meshid/meshidtest"
	"github.com/pushmesh/pushmesh/internal/tierauth"
)

// With --nats-creds a tier is let in by a NATS server that wants JWTs, and without them, or with
// those of a stranger, it is not.
func TestNATSTakesCredentials(t *testing.T) {
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		t.Helper()
		k, err := make()
		must(err)
		public, err := k.PublicKey()
		must(err)
		return k, public
	}
	operator, operatorID := pair(nkeys.CreateOperator)
	account, accountID := pair(nkeys.CreateAccount)
	claims := jwt.NewOperatorClaims(operatorID)
	_, err := claims.Encode(operator)
	must(err)
	signed, err := jwt.NewAccountClaims(accountID).Encode(operator)
	must(err)
	accounts := &server.MemAccResolver{}
	must(accounts.Store(accountID, signed))
	// creds are the file of a user that an account has signed.
	creds := func(name string, by nkeys.KeyPair) string {
		t.Helper()
		user, userID := pair(nkeys.CreateUser)
		text, err := jwt.NewUserClaims(userID).Encode(by)
		must(err)
		seed, err := user.Seed()
		must(err)
		file, err := jwt.FormatUserConfig(text, seed)
		must(err)
		path := filepath.Join(t.TempDir(), name)
		must(os.WriteFile(path, file, 0o600))
		return path
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, TrustedOperators: []*jwt.OperatorClaims{claims}, AccountResolver: accounts})
	must(err)
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(time.Minute) {
		t.Fatal("nats-server is not ready")
	}
	stranger, _ := pair(nkeys.CreateAccount)
	plain := (*tierauth.Identity)(nil)
	for name, flags := range map[string]tierauth.NATSFlags{
		"none":          {},
		"of a stranger": {NATSCreds: creds("stranger.creds", stranger)},
	} {
		conn, err := nats.Connect(srv.ClientURL(), plain.NATS(srv.ClientURL(), flags)...)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("credentials, %s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	b := bus.New(bus.Config{
		URL: srv.ClientURL(), Name: "test", Mesh: meshidtest.Identity(), Log: slog.New(slog.DiscardHandler),
		Secure: plain.NATS(srv.ClientURL(), tierauth.NATSFlags{NATSCreds: creds("tier.creds", account)}),
	})
	must(b.Start(t.Context()))
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	got := make(chan string, 1)
	if _, err := b.Subscribe("one", 8, func(data []byte, _ func([]byte) error) { got <- string(data) }); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patient)
	for b.Check() != nil && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	must(b.Check())
	must(b.Publish("one", []byte("hello")))
	select {
	case text := <-got:
		if text != "hello" {
			t.Errorf("got %q", text)
		}
	case <-time.After(patient):
		t.Error("nothing comes over the bus")
	}
}

package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
	"github.com/pushmesh/pushmesh/proto/wire"
)

// TestSubComesWithAToken has the command, in a context that names both, read its token again once
// it is told that it is too old, and end once it is told that it is not good; nothing that it
// prints has a token in it.
func TestSubComesWithAToken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secret.one")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	must(t, "", "context", "add", "here", "--edge", ln.Addr().String(), "--token-file", file)
	sub := start(t, nil, "sub", "a", "--context", "here")
	for _, x := range []struct {
		token  string
		answer wirev1.Code
	}{{"secret.one", wirev1.Code_CODE_TOKEN_EXPIRED}, {"secret.two", wirev1.Code_CODE_UNAUTHENTICATED}} {
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		hello := &wirev1.Hello{}
		ft, body, err := wire.Read(conn, nil, wire.MaxHello)
		if err != nil || ft != wirev1.FrameType_FRAME_TYPE_HELLO || proto.Unmarshal(body, hello) != nil || hello.GetToken() != x.token {
			t.Fatalf("%v, %v, token %q, want %q", ft, err, hello.GetToken(), x.token)
		}
		write("secret.two")
		answer, err := wire.Append(nil, wirev1.FrameType_FRAME_TYPE_ERROR, &wirev1.Error{Code: x.answer, Message: "because"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(answer); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	if code := sub.wait(); code != 1 || !strings.Contains(sub.err.String(), "UNAUTHENTICATED: because (trying the same again will not help)") {
		t.Errorf("exit code %d: %s", code, sub.err.String())
	}
	if strings.Contains(sub.out.String()+sub.err.String(), "secret") {
		t.Errorf("it prints the token: %s", sub.err.String())
	}
}

package pgserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Database makes an empty database on the server at base, a superuser's URL, and returns the URL of
// the role that owns it.
func Database(base string) (string, error) { return Copy(base, "") }

// Copy makes a database that is a copy of another one and its role's, to which nobody may be
// connected; "": of the server's own, with a role of its own.
func Copy(base, of string) (string, error) {
	var u *url.URL
	var err error
	name := Name()
	owner, template := name, ""
	if of == "" {
		u, err = Role(base, owner)
	} else if u, err = url.Parse(of); err == nil {
		owner, template = u.User.Username(), " TEMPLATE "+pgx.Identifier{u.Path[1:]}.Sanitize()
	}
	if err != nil {
		return "", err
	}
	if err := Exec(base, "CREATE DATABASE "+name+" OWNER "+pgx.Identifier{owner}.Sanitize()+template); err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

// Name that no other database or role has.
func Name() string {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw)
	return "pushmesh_test_" + hex.EncodeToString(raw)
}

// Role makes a role that may log in and nothing else, with the password that base has, and returns
// base's URL for it.
func Role(base, name string) (*url.URL, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("postgres url: %w", err)
	}
	sql := "CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN"
	user := url.User(name)
	if password, has := u.User.Password(); has {
		sql += " PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'"
		user = url.UserPassword(name, password)
	}
	u.User = user
	return u, Exec(base, sql)
}

// Drop a database, and the role that owns it where that is its own.
func Drop(base, made string, own bool) error {
	u, err := url.Parse(made)
	if err != nil {
		return err
	}
	err = Exec(base, "DROP DATABASE IF EXISTS "+pgx.Identifier{u.Path[1:]}.Sanitize()+" WITH (FORCE)")
	if err == nil && own {
		err = Exec(base, "DROP ROLE "+pgx.Identifier{u.User.Username()}.Sanitize())
	}
	return err
}

// servedWithin bounds what a busy server may take for one statement.
const servedWithin = 3 * time.Minute

// Exec runs one statement, again where only others stood in its way.
func Exec(base, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), servedWithin)
	defer cancel()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		err := once(ctx, base, sql)
		if err == nil || !crowded(err) {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}

func once(ctx context.Context, base, sql string) error {
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	_ = conn.Close(ctx)
	return err
}

// crowded reports whether a busy server refused because of others: a vacuum in the template that is
// copied, a session that has not ended yet in the database that is dropped (both are waited for,
// but only for seconds), no connection left.
func crowded(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55006" || pg.Code == "53300") // object_in_use, too_many_connections
}

// StartShared starts a server, with its folder in another one ("": that of temporary files), that
// ends with this process, however it ends: a shell waits for the end of a pipe that only this
// process holds, stops the server and removes its folder.
func StartShared(in string) (*Server, error) {
	dir, err := TempDir(in)
	if err != nil {
		return nil, err
	}
	s, err := Start(dir, 0)
	if err != nil {
		return nil, err
	}
	const script = `cat >/dev/null; kill -INT "$1"; while kill -0 "$1" 2>/dev/null; do sleep 0.05; done; rm -rf -- "$2"`
	// #nosec G204 -- all of it is ours
	reaper := exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(s.pid()), dir)
	// a Ctrl-C is not for it
	reaper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.lifeline, err = reaper.StdinPipe(); err != nil {
		return nil, err
	}
	return s, reaper.Start()
}

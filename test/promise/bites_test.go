package promise

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pushmesh/pushmesh/internal/pgtest"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/test/procmesh"
)

// Each fault in what lies between processes does to a mesh what it says, and nothing any more when
// it is over: chaos that does not bite proves nothing.
func TestFaultsBetweenProcessesBite(t *testing.T) {
	t.Parallel()
	base := pgtest.URL(t)
	ways, urls := databases(t, base, 1)
	m := procmesh.Start(t, procmesh.Options{DBs: urls, Halves: true})
	api, err := dial(m.RouterAddrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.conn.Close() }()
	n := 0
	publish := func() {
		n++
		ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
		defer cancel()
		err := insist(ctx, func(ctx context.Context) error {
			_, err := api.publish.Publish(ctx, &pushmeshv1.PublishRequest{Topic: "room/bites", Payload: []byte("x"), DedupeKey: fmt.Sprint(n)})
			return err
		})
		if err != nil {
			t.Fatalf("message %d is not answered: %v", n, err)
		}
	}
	publish()
	for _, v := range ways[0].victims() {
		must(t, v.Strike())
		switch v.Kind {
		case Slow:
			// What is slow costs a store its shards now and then, so no publish has to be answered
			// meanwhile.
			began := time.Now()
			pgtest.Exec(t, urls[0], `SELECT`)
			if took := time.Since(began); took < 300*time.Millisecond {
				t.Errorf("%s: a statement took %s", v.Name, took)
			}
		case Failing:
			met := ways[0].failed.Load() // a store has something to ask without publishes, too
			procmesh.Await(t, "statements fail", func() bool { return ways[0].failed.Load() >= met+uint64(len(pgtest.Fates)) })
		case Cut:
			procmesh.Await(t, "the store misses its database", func() bool {
				status, _ := m.Stores[0].Status()
				return status == 503
			})
		}
		must(t, v.Back())
		publish()
		m.WaitReady(t)
	}
	for _, v := range splits(m, 1) {
		first, second := listen(t, m, 0), listen(t, m, 1)
		procmesh.Await(t, "the halves are whole", func() bool { return second.reaches(t, first, "whole") })
		must(t, v.Strike())
		for range 20 {
			if second.reaches(t, first, "split") || first.reaches(t, second, "split") {
				t.Errorf("%s: a message came from one half to the other", v.Name)
			}
		}
		must(t, v.Back())
		procmesh.Await(t, "the halves are whole again", func() bool { return second.reaches(t, first, "healed") && first.reaches(t, second, "healed") })
		m.WaitReady(t)
		publish()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// client of one NATS server, in plain text.
type client struct {
	conn net.Conn
	in   *bufio.Reader
}

// listen connects to one of the mesh's servers and subscribes to "bites".
func listen(t *testing.T, m *procmesh.Mesh, server int) *client {
	t.Helper()
	conn, err := net.Dial("tcp", m.NATSAddr(server))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(settleWithin)))
	c := &client{conn: conn, in: bufio.NewReader(conn)}
	_, err = fmt.Fprint(conn, "CONNECT {\"verbose\":false,\"echo\":false}\r\nSUB bites 1\r\n")
	must(t, err)
	c.ping(t)
	return c
}

// ping has the server do everything that was said before, and returns what came meanwhile.
func (c *client) ping(t *testing.T) (came string) {
	t.Helper()
	_, err := fmt.Fprint(c.conn, "PING\r\n")
	must(t, err)
	for {
		line, err := c.in.ReadString('\n')
		must(t, err)
		if line == "PONG\r\n" {
			return came
		}
		came += line
	}
}

// reaches reports whether what c publishes has come to another client by the time that both of
// their servers have answered.
func (c *client) reaches(t *testing.T, other *client, text string) bool {
	t.Helper()
	_, err := fmt.Fprintf(c.conn, "PUB bites %d\r\n%s\r\n", len(text), text)
	must(t, err)
	c.ping(t)
	return strings.Contains(other.ping(t), text)
}

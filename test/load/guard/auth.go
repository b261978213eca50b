package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushmesh/pushmesh/internal/identity/token/tokentest"
	"github.com/pushmesh/pushmesh/test/load/local"
	"github.com/pushmesh/pushmesh/test/load/peer"
	"github.com/pushmesh/pushmesh/test/load/procfs"
	"github.com/pushmesh/pushmesh/test/load/publisher"
	"github.com/pushmesh/pushmesh/test/load/suite"
	"github.com/pushmesh/pushmesh/test/load/table"
	"github.com/pushmesh/pushmesh/test/load/try"
)

// NewAuth is the suite of what it costs that clients prove who they are.
func NewAuth(r *suite.Run) *suite.Suite {
	b := &bench{Run: r}
	return &suite.Suite{
		Rounds: 5, Span: 4 * time.Second, Timeout: 9*time.Minute + 30*time.Second,
		Parts: func() []suite.Part { return []suite.Part{{Name: "auth", Run: b.auth}, {Name: "revoke", Run: b.revoke}} },
	}
}

const (
	authConnects    = 2000 // of each kind, in a round
	authSubscribers = 1000
)

// authMeshes are two meshes that run side by side: one whose edge wants tokens, one that is open.
type authMeshes struct {
	guarded, open *local.Mesh
	issuer        *tokentest.Issuer
	end           func()
}

func (b *bench) authMeshes(ctx context.Context) (_ *authMeshes, err error) {
	defer try.Catch(&err)
	is, end := tokentest.Open()
	m := &authMeshes{issuer: is, end: end}
	file := try.Get(is.Write(string(b.Dir)))
	m.guarded = try.Get(b.Dir.StartMesh(ctx, b.Programs, 1, "--issuers", file, "--outbound-allow", "127.0.0.1"))
	m.open = try.Get(b.Dir.StartMesh(ctx, b.Programs, 1))
	return m, nil
}

func (m *authMeshes) stop() {
	m.end()
	for _, one := range []*local.Mesh{m.guarded, m.open} {
		if one != nil {
			one.Stop()
		}
	}
}

// token of the bench's user; n tells it from others.
func (m *authMeshes) token(n int) string {
	return m.issuer.Token("bench", map[string]any{"pm_sub": []string{"bench/#"}, "jti": fmt.Sprint(n)})
}

func (b *bench) auth(ctx context.Context) (err error) {
	defer try.Catch(&err)
	m := try.Get(b.authMeshes(ctx))
	defer m.stop()
	return errors.Join(b.authConnect(ctx, m), b.authDeliver(ctx, m))
}

// authConnect has clients connect with and without tokens, in turns.
func (b *bench) authConnect(ctx context.Context, m *authMeshes) (err error) {
	defer try.Catch(&err)
	again := m.token(-1)
	rate := map[string][]float64{}
	for round := range b.Rounds + 1 {
		fresh := make([]string, authConnects)
		for i := range fresh {
			fresh[i] = m.token(round*authConnects + i)
		}
		for _, kind := range []struct {
			name  string
			mesh  *local.Mesh
			token func(i int) string
		}{
			{"none", m.open, func(int) string { return "" }},
			{"fresh", m.guarded, func(i int) string { return fresh[i] }},
			{"again", m.guarded, func(int) string { return again }},
		} {
			each := try.Get(connecting(ctx, kind.mesh, kind.token))
			if round > 0 { // the first one fetches keys, and fills caches
				rate[kind.name] = append(rate[kind.name], each)
			}
		}
	}
	for _, row := range []struct {
		kind, what string
		goal       float64
	}{{"fresh", "tokens of ES256 that were never seen", 0.7}, {"again", "a token that was seen before", 0.95}} {
		b.Add(table.AtLeast("connections per second of one core, with "+row.what+", by those without", table.Ratio(rate[row.kind], rate["none"]), "×", row.goal,
			fmt.Sprintf("%.0f/s, without %.0f/s, ratios %.2f", table.Median(rate[row.kind]), table.Median(rate["none"]), table.Ratios(rate[row.kind], rate["none"]))))
	}
	return nil
}

// connecting is connections that were welcomed, and ended, in a second of the edge's CPU.
func connecting(ctx context.Context, m *local.Mesh, token func(i int) string) (_ float64, err error) {
	defer try.Catch(&err)
	pid := m.Edges[0].PID()
	before := try.Get(procfs.CPU(pid))
	err = suite.Each(authConnects, atATime, func(_, i int) error {
		conn, err := dial(ctx, m.Edges[0].Addr, nil)
		if err != nil {
			return err
		}
		_, err = peer.GreetWith(conn, "", token(i))
		return errors.Join(err, conn.Close())
	})
	after, errAfter := procfs.CPU(pid)
	return authConnects / (after - before).Seconds(), errors.Join(err, errAfter)
}

// authDeliver has as many subscribers with tokens as without get the same, in turns.
func (b *bench) authDeliver(ctx context.Context, m *authMeshes) (err error) {
	defer try.Catch(&err)
	cost := map[int]map[string][]float64{1: {}, 64: {}}
	type side struct {
		name string
		mesh *local.Mesh
		c    *crowd
		src  *publisher.Publisher
	}
	var sides []side
	for _, s := range []side{{name: "tokens", mesh: m.guarded}, {name: "none", mesh: m.open}} {
		token := ""
		if s.name == "tokens" {
			token = m.token(-2)
		}
		s.c = try.Get(connect(ctx, s.mesh.Edges[0].Addr, authSubscribers, nil, "bench/all", token))
		defer s.c.close()
		s.src = try.Get(publisher.New(ctx, s.mesh.Router.Addr, "bench/all", tlsSize))
		defer func() { err = errors.Join(err, s.src.Close()) }()
		sides = append(sides, s)
	}
	for range 2 * b.Rounds {
		for _, window := range []int{1, 64} {
			for _, s := range sides {
				each := try.Get(b.pump(ctx, s.mesh.Edges[0].PID(), s.c, s.src, window))
				cost[window][s.name] = append(cost[window][s.name], each)
			}
		}
	}
	for _, window := range []int{1, 64} {
		with, without := cost[window]["tokens"], cost[window]["none"]
		b.Add(table.AtMost(fmt.Sprintf("CPU per delivery to subscribers with tokens by that without, %d subscribers, %d B, window %d", authSubscribers, tlsSize, window),
			table.Ratio(with, without), "×", 1.02, fmt.Sprintf("%.3f µs, without %.3f, ratios %.2f", table.Median(with), table.Median(without), table.Ratios(with, without))))
	}
	return nil
}

package pgtest

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestAProxyCountsAndDelays(t *testing.T) {
	base := URL(t)
	p, err := NewProxy(base)
	must(t, err)
	defer func() { must(t, p.Close()) }()
	conn := connect(t, p.URL(base))
	connect(t, p.URL(base))
	p.mu.Lock()
	made := len(p.attempts)
	p.mu.Unlock()
	if p.MostAttempts() != 1 || made != 2 {
		t.Fatalf("%d attempts, %d at a time", made, p.MostAttempts())
	}
	var many sync.WaitGroup
	gate := make(chan struct{})
	p.Delay(func(int) time.Duration { // the first that each has to say
		<-gate
		return 0
	})
	for range 3 {
		many.Go(func() { connect(t, p.URL(base)) })
	}
	for p.MostAttempts() < 3 {
		runtime.Gosched()
	}
	close(gate)
	many.Wait()
	var mu sync.Mutex
	var seen []int
	p.Delay(func(n int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, n)
		return 30 * time.Millisecond
	})
	begun := time.Now()
	must(t, conn.Ping(t.Context()))
	if took := time.Since(begun); took < 30*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
	must(t, conn.Ping(t.Context()))
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 2 || seen[0] != 1 || seen[1] != 1 {
		// the first has ended when the second begins
		t.Errorf("in flight: %v", seen)
	}
}

// An attempt that was given up ends where the next begins, however late the proxy reads of it.
func TestAProxyCountsNobodyWhoGaveUp(t *testing.T) {
	p, err := NewProxy(URL(t))
	must(t, err)
	defer func() { must(t, p.Close()) }()
	for range 50 {
		conn, err := net.Dial("tcp", p.listener.Addr().String())
		must(t, err)
		must(t, conn.Close())
	}
	connect(t, p.URL(URL(t)))
	if p.MostAttempts() != 1 {
		t.Errorf("%d at a time", p.MostAttempts())
	}
}

// What becomes of a statement is the test's to say: an unsent one is not done, an unanswered one
// is, and either way its connection ends. Where all are refused nobody gets one.
func TestAProxyFailsStatements(t *testing.T) {
	base := URL(t)
	Exec(t, base, `CREATE TABLE done (how text)`)
	p, err := NewProxy(base)
	must(t, err)
	defer func() { must(t, p.Close()) }()
	for _, fate := range []Fate{Unsent, Unanswered} {
		conn := connect(t, p.URL(base))
		p.Judge(func(Statement) Fate { return fate })
		if _, err := conn.Exec(t.Context(), `INSERT INTO done VALUES ('`+fate.String()+`')`); err == nil || !conn.IsClosed() {
			t.Errorf("%s: %v, closed: %v", fate, err, conn.IsClosed())
		}
		p.Judge(nil)
	}
	conn := connect(t, p.URL(base))
	p.Refuse(true)
	if _, err := conn.Exec(t.Context(), `SELECT 1`); err == nil {
		t.Error("a connection that is refused answers")
	}
	if c, err := pgx.Connect(t.Context(), p.URL(base)); err == nil {
		t.Error("a connection was made", c)
	}
	p.Refuse(false)
	var done []string
	must(t, connect(t, p.URL(base)).QueryRow(t.Context(), `SELECT array_agg(how) FROM done`).Scan(&done))
	if len(done) != 1 || done[0] != "unanswered" {
		t.Errorf("done: %q, want what was unanswered alone", done)
	}
}

package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/pushmesh/pushmesh/services/store/internal/backend"
)

// claimsEnv names the database file to a child process, which changes claims until it is killed.
const claimsEnv = "PUSHMESH_SQLITE_CLAIMS_KILL_TEST"

// counted takes shard 1, without force, and says what was counted there: the one place's owner.
func counted(t *testing.T, r backend.ClaimWriter) (n int, next uint64, last []backend.ClaimKey) {
	t.Helper()
	taken, _, err := r.Take(context.Background(), []int{1}, false, func(p backend.ClaimPlace) {
		n, _ = strconv.Atoi(p.Owner)
		last = append(last, p.ClaimKey)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(last) > 1 {
		t.Fatalf("half of a commit is there: %v", last)
	}
	return n, taken[0].Next, last
}

// What a process that is killed was told to be committed of claims is there for the next one, which
// need not take it by force.
func TestClaimsOfTheKilled(t *testing.T) {
	if path := os.Getenv(claimsEnv); path != "" {
		countForEver(t, path)
	}
	path := filepath.Join(t.TempDir(), "store.db")
	acked, next := 0, uint64(0)
	for range 3 {
		acked = killedCounting(t, path, acked)
		b := openAt(t, path)
		r, err := b.OpenClaims(context.Background(), owner)
		if err != nil {
			t.Fatal(err)
		}
		n, from, _ := counted(t, r)
		if n != acked && n != acked+1 {
			t.Errorf("%d were acknowledged, %d is there", acked, n)
		}
		if from < next+backend.ClaimNumbers {
			t.Errorf("numbers from %d after those from %d", from, next)
		}
		acked, next = n, from
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killedCounting runs a child until it has acknowledged 60 more, kills it, and says the last that
// was acknowledged.
func killedCounting(t *testing.T, path string, from int) (acked int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestClaimsOfTheKilled$")
	cmd.Env = append(os.Environ(), claimsEnv+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked = from
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n != acked+1 {
			continue // a line may be cut
		}
		if acked = n; n == from+60 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
		t.Fatalf("the child ended by itself after %d: %v", acked, err)
	}
	return acked
}

func countForEver(t *testing.T, path string) {
	r, err := openAt(t, path).OpenClaims(context.Background(), owner)
	if err != nil {
		t.Fatal(err)
	}
	n, next, last := counted(t, r)
	for ; ; next++ {
		n++
		key := backend.ClaimKey{Shard: 1, Seq: next}
		c := backend.ClaimChanges{Put: []backend.ClaimPlace{{ClaimKey: key, Owner: strconv.Itoa(n)}}, Delete: last}
		if _, err := r.Commit(context.Background(), &c); err != nil {
			t.Fatal(err)
		}
		fmt.Println(n)
		last = []backend.ClaimKey{key}
	}
}

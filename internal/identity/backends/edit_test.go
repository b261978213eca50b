package backends

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestManyMayChangeTheFile(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "backends.yaml"), time.Now()
	const n = 8
	var ids [n]string
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			k, _, err := Create(path, fmt.Sprint("b", i), []string{"auditor"}, now, time.Time{})
			if err != nil {
				t.Error(err)
			}
			ids[i] = k.ID
		})
	}
	all.Wait()
	has := func() int {
		list, err := List(path)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if got := has(); got != n {
		t.Fatalf("%d keys were printed, and %d are in the file", n, got)
	}
	for _, id := range ids {
		all.Go(func() {
			if err := Revoke(path, id); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := has(); got != 0 {
		t.Errorf("%d keys that were revoked are in the file", got)
	}
}

// The router reads the file as the one that it belongs to, or as one of its group.
func TestAnEditedFileBelongsToWhomItDid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	const uid, gid = 65534, 65533
	path, now := filepath.Join(t.TempDir(), "backends.yaml"), time.Now()
	k, _, err := Create(path, "a", []string{"auditor"}, now, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := Revoke(path, k.ID); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if is := info.Sys().(*syscall.Stat_t); is.Uid != uid || is.Gid != gid || info.Mode().Perm() != newFileMode {
		t.Errorf("it belongs to %d:%d with mode %v", is.Uid, is.Gid, info.Mode())
	}
}

// What key create has said is done is in a file that routers take.
func TestNoKeyIsMadeThatRoutersWouldNotTake(t *testing.T) {
	path, now := filepath.Join(t.TempDir(), "backends.yaml"), time.Now()
	roles := []string{"auditor"}
	for range maxOfEach {
		if _, _, err := Create(path, "a", roles, now, time.Time{}); err != nil {
			t.Fatal(err)
		}
		roles = nil
	}
	if _, _, err := Create(path, "a", nil, now, time.Time{}); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("one key more than a backend may have: %v", err)
	}
	if _, err := Read(path, nil); err != nil {
		t.Errorf("routers don't take the file: %v", err)
	}
}

// A backend becomes what an entry says, whatever it was; its keys, and the comments of the file,
// stay.
func TestPutAndRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backends.yaml")
	if all, err := Entries(path); err != nil || all != nil {
		t.Fatal(all, err)
	}
	first := Entry{Name: "17", Roles: []string{"auditor"}, Tokens: []TokenSubject{{"corp", "ci"}}, Limits: Limits{Rate: 7}}
	if err := Put(path, first); err != nil {
		t.Fatal(err)
	}
	k, _, err := Create(path, "17", nil, time.Now(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("# ours\n"), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	second := Entry{Name: "17", Roles: []string{"consumer:#"}, Certificates: []string{"a.example"}}
	for _, e := range []Entry{second, {Name: "other", Roles: []string{"auditor"}}, second} {
		if err := Put(path, e); err != nil {
			t.Fatal(err)
		}
	}
	all, err := Entries(path)
	second.Keys = []Key{k}
	if err != nil || len(all) != 2 || fmt.Sprint(all[0]) != fmt.Sprint(second) {
		t.Errorf("%v, %v, want %v", all, err, second)
	}
	if err := Remove(path, "17"); err != nil {
		t.Fatal(err)
	}
	if all, err = Entries(path); err != nil || len(all) != 1 || all[0].Name != "other" {
		t.Errorf("%v, %v", all, err)
	}
	if data, err = os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), "# ours\n") {
		t.Errorf("%s, %v", data, err)
	}
	faults := Check([]Entry{{Name: "a", Certificates: []string{"x"}}, {Name: "b", Certificates: []string{"x"}, Tokens: []TokenSubject{{"any", "s"}}}})
	if len(faults[0]) != 0 || len(faults[1]) != 1 {
		t.Error(faults)
	}
}

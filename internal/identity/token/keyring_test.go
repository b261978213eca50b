package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// hammer shows tokens of made-up keys.
func hammer(t *testing.T, v *Verifier, from, n int) {
	t.Helper()
	claims := b64(jsonOf(good(nil)))
	for i := range n {
		token := b64(jsonOf(header("ES256", fmt.Sprint("k", from+i), nil))) + "." + claims + ".AAAA"
		if _, err := v.Verify(t.Context(), token); code.Of(err) != unavailable && code.Of(err) != unauthenticated {
			t.Fatal(err)
		}
	}
}

// Made-up tokens do not keep the mesh from telling for good that a key is gone.
func TestKeyIsGoneUnderHammering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		gone := sign("ES256", ecNext, header("ES256", "gone", nil), good(nil))
		synctest.Wait()
		<-time.After(time.Second)
		wants(t, v, "first", gone, unavailable, "fetched again")
		hammer(t, v, 0, 2000)
		<-time.After(DefaultCooldown)
		synctest.Wait()
		hammer(t, v, 2000, 2000)
		wants(t, v, "after a fetch", gone, unauthenticated, "no key")
		if n := len((*v.issuers.Load())["https://id.example"].missed); n > mostMissed {
			t.Errorf("%d tokens are remembered", n)
		}
	})
}

// A key that an issuer has begun to use just now is one that is fetched soon, even if somebody has
// shown its id, which may be guessed, long before.
func TestGuessedKeyIDHurtsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "1", nil))
		v := begin(t, w, issuersFile, Options{})
		made := sign("ES256", ecKey, header("ES256", "2", nil), good(nil))
		synctest.Wait()
		<-time.After(time.Second)
		wants(t, v, "made up", made, unavailable, "fetched again")
		<-time.After(DefaultCooldown)
		synctest.Wait()
		wants(t, v, "made up, after a fetch", made, unauthenticated, "no key")
		<-time.After(time.Second)
		w.serve(jwkOf(ecKey.Public(), "1", nil), jwkOf(ecNext.Public(), "2", nil))
		next := sign("ES256", ecNext, header("ES256", "2", nil), good(nil))
		wants(t, v, "signed by the new key", next, unavailable, "fetched again")
		<-time.After(DefaultCooldown)
		synctest.Wait()
		wants(t, v, "a cooldown later", next, isOK, "")
	})
}

// Who asks after Stop is answered at once, and so is who waits when it comes.
func TestNobodyWaitsAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		synctest.Wait()
		<-time.After(DefaultCooldown)
		if err := v.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		wants(t, v, "unknown key", sign("ES256", ecNext, header("ES256", "n", nil), good(nil)), unavailable, "")
		wants(t, v, "known key", sign("ES256", ecKey, header("ES256", "e", nil), good(nil)), isOK, "")
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.set(func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() })
		v := begin(t, w, issuersFile, Options{})
		began, ended := time.Now(), make(chan error, 1)
		go func() {
			_, err := v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", "e", nil), good(nil)))
			ended <- err
		}()
		synctest.Wait()
		if err := v.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; code.Of(err) != unavailable || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is not a regular file is refused, and not waited for; a link to one is one.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	fifo, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, file, secret)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{fifo: false, dir: false, "/dev/zero": false, filepath.Join(dir, "none"): false, link: true, file: true} {
		if _, err := ReadFile(path, MaxKeySet); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A file of keys is read again soon after it was changed, and not while it is as it was.
func TestFilesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		// as Kubernetes has them: a link to a folder is changed for another
		for i, key := range [][]byte{secret, append([]byte("another "), secret...)} {
			at := filepath.Join(dir, fmt.Sprint(i))
			if err := os.Mkdir(at, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(at, "secret"), key)
		}
		data, path := filepath.Join(dir, "data"), filepath.Join(dir, "data", "secret")
		point := func(to string) {
			t.Helper()
			if err := os.Symlink(to, data+".new"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(data+".new", data); err != nil {
				t.Fatal(err)
			}
		}
		point("0")
		v := begin(t, &web{}, string(jsonOf(fields{"issuers": []fields{{
			"name": "id", "url": "https://id.example", "audiences": []string{"mesh"}, "hs256_secret_file": path,
		}}})), Options{})
		ring := (*v.issuers.Load())["https://id.example"]
		token := func(key []byte) string {
			return sign("HS256", key, fields{"alg": "HS256"}, good(fields{"exp": time.Now().Add(time.Hour).Unix()}))
		}
		old, next := token(secret), token(append([]byte("another "), secret...))
		wants(t, v, "the first secret", old, isOK, "")
		read := func() time.Time {
			ring.mu.Lock()
			defer ring.mu.Unlock()
			return ring.began
		}
		first := read()
		<-time.After(DefaultRefresh / 2)
		synctest.Wait()
		if !read().Equal(first) {
			t.Error("a file that is as it was is read again")
		}
		point("1")
		<-time.After(2 * watchEvery)
		synctest.Wait()
		wants(t, v, "the first secret, changed", old, unauthenticated, "signature")
		wants(t, v, "the next", next, isOK, "")

		if err := os.Remove(data); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		wants(t, v, "while the file is away", next, isOK, "")
		point("0")
		<-time.After(2 * watchEvery)
		synctest.Wait()
		wants(t, v, "it is back, and the first one", old, isOK, "")
		wants(t, v, "the next, taken back", next, unauthenticated, "signature")
	})
}

// A key that was changed for another, without an id or under the same one, is told from a wrong
// signature, even where others show wrong ones all the time.
func TestKeyIsChangedUnderItsID(t *testing.T) {
	for _, id := range []string{"", "default"} {
		synctest.Test(t, func(t *testing.T) {
			w := &web{}
			w.serve(jwkOf(ecKey.Public(), id, nil))
			v := begin(t, w, issuersFile, Options{})
			es := header("ES256", id, nil)
			other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
			synctest.Wait()
			<-time.After(DefaultCooldown)
			wrong := sign("ES256", other, es, good(nil))
			wants(t, v, "wrong, after a fetch for it", wrong, unauthenticated, "signature")
			<-time.After(time.Second)
			w.serve(jwkOf(ecNext.Public(), id, nil))
			next := sign("ES256", ecNext, es, good(nil))
			wants(t, v, "signed by the new key", next, unavailable, "fetched again")
			wants(t, v, "wrong", wrong, unauthenticated, "signature")
			<-time.After(DefaultCooldown)
			synctest.Wait()
			wants(t, v, "a cooldown later", next, isOK, "")
			if n := w.asked.Load(); n != 3 {
				t.Errorf("%d fetches", n)
			}
		})
	}
}

// Who shows a token that no key has signed is told so at once where no fetch could change it: the
// token is older than the keys, or they are of a file that is as it was.
func TestRefusedForGoodAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		synctest.Wait()
		fetched := time.Now()
		<-time.After(time.Second)
		for _, c := range []struct {
			iat  time.Time
			want wirev1.Code
		}{
			{fetched.Add(-time.Hour), unauthenticated},
			{fetched.Add(-DefaultLeeway), unauthenticated},
			{fetched.Add(time.Second - DefaultLeeway), unavailable},
			{time.Now(), unavailable},
		} {
			for kid, says := range map[string]string{"e": "signature", "unknown": "no key"} {
				token := sign("ES256", ecNext, header("ES256", kid, nil), good(fields{"iat": c.iat.Unix()}))
				wants(t, v, fmt.Sprint(kid, " ", c.iat), token, c.want, says)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "secret")
		write(t, path, secret)
		v := begin(t, &web{}, string(jsonOf(fields{"issuers": []fields{{
			"name": "id", "url": "https://id.example", "audiences": []string{"mesh"}, "hs256_secret_file": path,
		}}})), Options{})
		ring := (*v.issuers.Load())["https://id.example"]
		synctest.Wait()
		first := ring.current.Load()
		another := append([]byte("another "), secret...)
		next := sign("HS256", another, fields{"alg": "HS256"}, good(nil))
		for i := range 3 {
			wants(t, v, "wrong", sign("HS256", another, fields{"alg": "HS256"}, good(fields{"jti": fmt.Sprint(i)})), unauthenticated, "signature")
			<-time.After(watchEvery)
		}
		if ring.current.Load() != first {
			t.Error("the file was read again for a wrong signature")
		}
		<-time.After(watchEvery / 2) // no look at the file is under way
		write(t, path, another)
		wants(t, v, "the file was changed this instant", next, isOK, "")
	})
}

// An issuer that can't be reached is told of in the log now and then, however many tokens ask for
// its keys, and once when it is back.
func TestLogOfAnIssuerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, log := &web{}, newLines()
		w.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") })
		v := begin(t, w, issuersFile, Options{Log: log.logger()})
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": time.Now().Add(2 * time.Hour).Unix()}))
		for range 60 {
			wants(t, v, "away", token, unavailable, "can't be had")
			<-time.After(DefaultCooldown)
		}
		if n := strings.Count(log.String(), "could not be fetched"); n < 2 || n > 11 {
			t.Errorf("%d lines in 10 minutes", n)
		}
		w.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("another fault") })
		for range 7 {
			wants(t, v, "another fault", token, unavailable, "can't be had")
			<-time.After(DefaultCooldown)
		}
		if !strings.Contains(log.String(), "another fault") {
			t.Error("another fault is not told of within a minute")
		}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		for range 3 {
			_, _ = v.Verify(t.Context(), token)
			<-time.After(DefaultRefresh)
		}
		wants(t, v, "back", token, isOK, "")
		if n := strings.Count(log.String(), "can be fetched again"); n != 1 {
			t.Errorf("%d lines of its being back", n)
		}
	})
}

// When an edge begins, more may come than wait for the first fetch: they are told to come again
// soon after it, not after the next.
func TestCrowdBeforeTheFirstFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		body := jsonOf(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil)}})
		w.set(func(*http.Request) (*http.Response, error) {
			<-time.After(200 * time.Millisecond)
			return ok(bytes.NewReader(body)), nil
		})
		v := begin(t, w, issuersFile, Options{})
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(nil))
		ended := make(chan error)
		const crowd = mostWaiting + 50
		for range crowd {
			go func() { _, err := v.Verify(t.Context(), token); ended <- err }()
		}
		refused := 0
		for range crowd {
			if err := <-ended; err != nil {
				refused++
				if after := code.From(err).RetryAfter; code.Of(err) != unavailable || after != time.Second {
					t.Errorf("%v, again in %v", err, after)
				}
			}
		}
		if refused != crowd-mostWaiting {
			t.Errorf("%d are refused", refused)
		}
		wants(t, v, "again", token, isOK, "")
	})
}

// A token that is shown just when the first keys come is tried with them.
func TestTokensThatComeWithTheKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write(t, path, secret)
	issuers, err := parseIssuers(jsonOf(fields{"issuers": []fields{{
		"name": "id", "url": "https://id.example", "audiences": []string{"mesh"}, "hs256_secret_file": path,
	}}}))
	if err != nil {
		t.Fatal(err)
	}
	token := sign("HS256", secret, fields{"alg": "HS256"}, good(fields{"exp": time.Now().Add(time.Hour).Unix()}))
	for i := range 2000 {
		v := New(issuers, Options{})
		if err := v.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); time.Since(begin) < time.Duration(i%100)*time.Microsecond; {
			// each time at another step
		}
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if err := v.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

const twoIssuers = `{"issuers": [
	{"name": "a", "url": "https://id.example", "jwks_url": "https://a.example/keys", "audiences": ["mesh"], "user_prefix": "a:"},
	{"name": "b", "url": "https://id.example/", "jwks_url": "https://b.example/keys", "audiences": ["mesh"], "user_prefix": "b:"}]}`

// Issuers whose URLs differ by a slash alone, and whose keys have one id, are two: the key of one
// makes no token of the other, whichever was shown first.
func TestIssuersAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &web{}, &web{}
		a.serve(jwkOf(ecKey.Public(), "1", nil))
		b.serve(jwkOf(ecNext.Public(), "1", nil))
		w := &web{}
		w.set(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "a.example" {
				return a.RoundTrip(r)
			}
			return b.RoundTrip(r)
		})
		v := begin(t, w, twoIssuers, Options{})
		of := func(key *ecdsa.PrivateKey, url string) string {
			return sign("ES256", key, header("ES256", "1", nil), good(fields{"iss": url}))
		}
		for range 2 {
			for url, key := range map[string]*ecdsa.PrivateKey{"https://id.example": ecKey, "https://id.example/": ecNext} {
				other := ecKey
				if key == ecKey {
					other = ecNext
				}
				wants(t, v, url, of(key, url), isOK, "")
				wants(t, v, url+" by the other", of(other, url), unauthenticated, "signature")
			}
		}
		for _, url := range []string{"https://id.example//", "https://ID.example", "https://id.example:443", "https://id.example ", "HTTPS://id.example"} {
			wants(t, v, url, of(ecKey, url), unauthenticated, "iss")
		}
		who, err := v.Verify(t.Context(), of(ecNext, "https://id.example/"))
		if err != nil || who.User != "b:ann" || who.Proof.Issuer != "b" {
			t.Errorf("%+v %v", who, err)
		}
	})
}

// Names of users are compared byte by byte: nobody becomes another by how text is written.
func TestUsersAreTheirBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		for _, sub := range []string{"ann", "Ann", "ANN", "ann ", " ann", "an\u006e\u0303", "an\u00f1", "ann\u200b", "\u202eann", "ａnn", "аnn", "ann.", "{user}", "%61nn", "\u212a", "K", "k"} {
			who, err := v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"sub": sub})))
			if err != nil || who.User != sub {
				t.Errorf("%q is %+v, %v", sub, who, err)
				continue
			}
			for _, of := range []string{"ann", "Ann", "k", "{user}"} {
				if _, allowed := who.Allows(identity.Subscribe, "user/"+of+"/#"); allowed && sub != of {
					t.Errorf("%q may read what is for %q", sub, of)
				}
			}
		}
		for _, sub := range []string{"a\x00", "a\x7f", "a\u0085", "a/b", "#", "$a", "\ufffd", strings.Repeat("a", identity.MaxUser+1)} {
			wants(t, v, sub, sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"sub": sub})), unauthenticated, "")
		}
		// escapes are the same text
		who, err := v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"sub": json.RawMessage(`"\u0061nn"`)})))
		if err != nil || who.User != "ann" {
			t.Errorf("%+v %v", who, err)
		}
	})
}

// Claims that the mesh has no use for may be what they are with known issuers: what a user may do
// with Keycloak's resources, and who acts for whom (RFC 8693).
func TestForeignClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		for name, claims := range map[string]string{
			"Keycloak": `{"authorization":{"permissions":[{"scopes":["view"],"claims":{"org":["a"]},"rsid":"1"}]},"resource_access":{"account":{"roles":["x"]}}}`,
			"actors":   `{"act":{"sub":"1","act":{"sub":"2","act":{"sub":"3","act":{"sub":"4"}}}}}`,
			"numbers":  `{"a":1e400,"b":-0.0,"c":123456789012345678901234567890,"d":null,"e":[[[]]]}`,
			"names":    `{"https://x.example/roles":["a"],"":"","__proto__":{},"pm":1,"PM_SUB":["#"]}`,
		} {
			text := string(jsonOf(good(nil)))
			token := sign("ES256", ecKey, header("ES256", "e", nil), text[:len(text)-1]+","+claims[1:])
			who, err := v.Verify(t.Context(), token)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if _, allowed := who.Allows(identity.Subscribe, "#"); allowed {
				t.Errorf("%s gives a right", name)
			}
		}
	})
}

// A token ends at the instant of exp and leeway, from the cache, too.
func TestTheLastInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		exp := time.Now().Truncate(time.Second).Add(10 * time.Second)
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": exp.Unix()}))
		fresh := sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": exp.Unix(), "jti": "x"}))
		wants(t, v, "good", token, isOK, "")
		<-time.After(time.Until(exp.Add(DefaultLeeway)) - 1)
		wants(t, v, "the last nanosecond", token, isOK, "")
		<-time.After(1)
		wants(t, v, "over", token, wirev1.Code_CODE_TOKEN_EXPIRED, "")
		wants(t, v, "over, and never shown before", fresh, wirev1.Code_CODE_TOKEN_EXPIRED, "")
	})
}

// A token whose time ended while its caller waited is no good one.
func TestExpiryWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.set(func(*http.Request) (*http.Response, error) {
			<-time.After(4 * time.Second)
			return ok(strings.NewReader(string(jsonOf(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil)}})))), nil
		})
		v := begin(t, w, issuersFile, Options{})
		exp := time.Now().Add(2*time.Second - DefaultLeeway)
		wants(t, v, "waits 4 s", sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"exp": exp.Unix()})), wirev1.Code_CODE_TOKEN_EXPIRED, "over")
	})
}

// Whatever number exp is, the time that comes of it can be written down and compared.
func TestNumbersOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		for number, want := range map[string]wirev1.Code{
			"253402300799": isOK, "253402300799.5": unauthenticated, "253402300800": unauthenticated, "1e300": unauthenticated, "1e999": unauthenticated,
			"9e9": isOK, "9.0000000001e9": isOK, "1e-400": wirev1.Code_CODE_TOKEN_EXPIRED, "0": wirev1.Code_CODE_TOKEN_EXPIRED, "-0": unauthenticated,
			"NaN": unauthenticated, "Infinity": unauthenticated, "0x7fffffffffff": unauthenticated, "[9e9]": unauthenticated, "true": unauthenticated,
			"18446744073709551616": unauthenticated, "1" + strings.Repeat("0", 400): unauthenticated, `"9e9"`: unauthenticated,
		} {
			claims := strings.Replace(string(jsonOf(good(fields{"exp": 12345}))), "12345", number, 1)
			token := sign("ES256", ecKey, header("ES256", "e", nil), claims)
			wants(t, v, number, token, want, "")
			if who, err := v.Verify(t.Context(), token); err == nil {
				if _, err := json.Marshal(who.Expires); err != nil || !time.Now().Before(who.Expires) {
					t.Errorf("%s ends %v: %v", number, who.Expires, err)
				}
			}
		}
	})
}

// A signature in another form than JWS wants is none. The one that ECDSA has beside each is no
// other user's.
func TestFormsOfSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil), jwkOf(rsaKey().Public(), "r", nil), jwkOf(edKey.Public(), "d", nil))
		v := begin(t, w, issuersFile, Options{})
		input := b64(jsonOf(header("ES256", "e", nil))) + "." + b64(jsonOf(good(nil)))
		sum := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, ecKey, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		n := elliptic.P256().Params().N
		pair := func(r, s *big.Int) []byte {
			return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
		}
		whole := pair(r, s)
		for name, signature := range map[string][]byte{
			"DER": must(asn1.Marshal(struct{ R, S *big.Int }{r, s})), "one byte less": whole[:63], "one byte more": append(whole[:64:64], 0), "a zero before": append([]byte{0}, whole...),
			"r 0": pair(new(big.Int), s), "s 0": pair(r, new(big.Int)), "both 0": make([]byte, 64), "r n": pair(n, s), "s n": pair(r, n), "ones": []byte(strings.Repeat("\xff", 64)), "long": make([]byte, 4000),
		} {
			wants(t, v, name, input+"."+b64(signature), unauthenticated, "signature")
		}
		wants(t, v, "whole", input+"."+b64(whole), isOK, "")
		wants(t, v, "its other half", input+"."+b64(pair(r, new(big.Int).Sub(n, s))), isOK, "")
		for kid, key := range map[string]struct {
			alg string
			key any
		}{"r": {"RS256", rsaKey()}, "d": {"EdDSA", edKey}} {
			token := sign(key.alg, key.key, header(key.alg, kid, nil), good(nil))
			at := strings.LastIndexByte(token, '.') + 1
			for _, length := range []int{0, 1, 63, 65, 255, 257, 4000} {
				wants(t, v, fmt.Sprint(key.alg, " ", length), token[:at]+b64(make([]byte, length)), unauthenticated, "signature")
			}
		}
	})
}

// While keys are taken back and come anew, no token is taken whose key was taken back before it was
// shown, and none whose key is there all the time is refused.
func TestVerifyWhileKeysChange(t *testing.T) {
	issuers, err := parseIssuers([]byte(issuersFile))
	if err != nil {
		t.Fatal(err)
	}
	v := New(issuers, Options{CacheBytes: 32 << 10})
	ring := (*v.issuers.Load())["https://id.example"]
	one, two := newKey("1", "ES256", ecKey.Public(), []byte("1")), newKey("2", "ES256", ecNext.Public(), []byte("2"))
	both, alone := must(newKeySet([]*key{one, two}, 0)), must(newKeySet([]*key{one}, 0))
	ring.stop()
	ring.current.Store(&fetched{set: both, began: time.Now()})
	var stay, goes [16]string
	for i := range stay {
		stay[i] = sign("ES256", ecKey, header("ES256", "1", nil), good(fields{"jti": fmt.Sprint(i)}))
		goes[i] = sign("ES256", ecNext, header("ES256", "2", nil), good(fields{"jti": fmt.Sprint(i)}))
	}
	var mu sync.RWMutex // held by what must know whether the key is there
	there := true
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 200 {
				if _, err := v.Verify(t.Context(), stay[i%len(stay)]); err != nil {
					t.Errorf("a token whose key is there: %v", err)
				}
				_, _ = v.Verify(t.Context(), goes[i%len(goes)]) // at any time
				mu.RLock()
				_, err := v.Verify(t.Context(), goes[i%len(goes)])
				if (err == nil) != there || err != nil && code.Of(err) != unavailable && code.Of(err) != unauthenticated {
					t.Errorf("the key is there: %v, and the answer %v", there, err)
				}
				mu.RUnlock()
			}
		})
	}
	for i := range 100 {
		mu.Lock()
		there = i%2 == 1
		if there {
			ring.current.Store(&fetched{set: both, began: time.Now()})
		} else {
			ring.current.Store(&fetched{set: alone, began: time.Now()})
		}
		mu.Unlock()
		runtime.Gosched()
	}
	all.Wait()
}

// What the cache holds takes about as much as it believes, of the tokens that hold the most, too.
func TestTheCacheKnowsWhatItHolds(t *testing.T) {
	many := func(n, size int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%0*d", size, i))
		}
		return all
	}
	numbers := fields{}
	for i := range 60 {
		numbers[fmt.Sprint("n", i)] = i
	}
	for name, claims := range map[string]fields{
		"few claims":    {},
		"short filters": {"pm_sub": many(64, 2), "pm_pub": many(64, 2), "pm_claim": many(64, 2), "pm_group": many(64, 2)},
		"long filters":  {"pm_sub": many(20, 200), "pm_client": many(16, 60)},
		"profile":       {"pm_profile": numbers},
	} {
		const n = 100
		c := newCache(1 << 30)
		ring := newKeyring(&Issuer{Name: "id"}, nil, nil)
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		for i := range n {
			claims := good(claims)
			claims["jti"] = fmt.Sprintf("%032d", i)
			claims["pm_sub"] = append([]string{fmt.Sprint("t", i)}, must(texts(map[string]json.RawMessage{"x": jsonOf(claims["pm_sub"])}, "x", 64))[1:]...)
			text := jsonOf(claims)
			who, err := principal(must(Members(text, MaxClaims, MaxNesting)), "")
			if err != nil {
				t.Fatal(name, err)
			}
			c.put(sha256.Sum256(text), &verified{who: who, keys: ring, print: strings.Repeat("x", 64)}, len(text)*4/3+200)
		}
		took, believed := int(heap()-before), c.all.Cost()
		t.Logf("%s: %d bytes each, %d are believed", name, took/n, believed/n)
		if took > believed*5/4 {
			t.Errorf("%s: a token takes %d bytes, the cache believes %d", name, took/n, believed/n)
		}
		runtime.KeepAlive(c)
	}
}

package token

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/internal/identity"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// The keys of the tests, made once: RSA takes long.
var (
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey  = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ecNext = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	edKey  = func() ed25519.PrivateKey { _, k, _ := ed25519.GenerateKey(rand.Reader); return k }()
	secret = []byte("0123456789abcdef0123456789abcdef")
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type fields = map[string]any

func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// sign makes a token of whatever header and claims, which may be what jwx would not make.
func sign(alg string, with any, header, claims any) string {
	input := b64(jsonOf(header)) + "." + b64(jsonOf(claims))
	var signature []byte
	switch alg {
	case "none":
	default:
		a, _ := jwa.LookupSignatureAlgorithm(alg)
		signer := must(jws.SignerFor(a))
		signature = must(signer.Sign(with, []byte(input)))
	}
	return input + "." + b64(signature)
}

func jsonOf(v any) []byte {
	if raw, ok := v.(string); ok {
		return []byte(raw)
	}
	return must(json.Marshal(v))
}

// good are claims that pass, with changes; nil takes one out.
func good(changes fields) fields {
	c := fields{"iss": "https://id.example", "aud": "mesh", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "pm_sub": []string{"room/+/chat"}}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

func header(alg, kid string, more fields) fields {
	h := fields{"alg": alg, "kid": kid, "typ": "JWT"}
	maps.Copy(h, more)
	return h
}

func jwkOf(pub any, kid string, more fields) fields {
	k := must(jwk.Import(pub))
	var f fields
	if err := json.Unmarshal(must(json.Marshal(k)), &f); err != nil {
		panic(err)
	}
	f["kid"] = kid
	maps.Copy(f, more)
	return f
}

// web answers requests in the test's process, so that a bubble of synctest sees all of it.
type web struct {
	asked  atomic.Int32
	answer atomic.Pointer[answer]
}

type answer func(*http.Request) (*http.Response, error)

func (w *web) set(a answer) { w.answer.Store(&a) }

func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.asked.Add(1)
	return (*w.answer.Load())(r)
}

func (w *web) serve(keys ...fields) {
	body := jsonOf(fields{"keys": keys})
	w.set(func(*http.Request) (*http.Response, error) { return ok(bytes.NewReader(body)), nil })
}

func ok(body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}
}

const issuersFile = `{"issuers": [{"name": "id", "url": "https://id.example", "jwks_url": "https://id.example/keys", "audiences": ["mesh", "other"]}]}`

// begin starts a Verifier of issuers whose keys w has.
func begin(t testing.TB, w *web, file string, o Options) *Verifier {
	t.Helper()
	issuers, err := parseIssuers([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	o.Client = &http.Client{Transport: w}
	v := New(issuers, o)
	if err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return v
}

// wants checks how a token is refused.
func wants(t *testing.T, v *Verifier, what, token string, want wirev1.Code, says string) {
	t.Helper()
	_, err := v.Verify(t.Context(), token)
	if code.Of(err) != want || want != wirev1.Code_CODE_OK && !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %v with %q", what, err, code.Name(want), says)
	}
	if err != nil && len(token) > 40 && (strings.Contains(err.Error(), token[:20]) || strings.Contains(err.Error(), "s3cr3t")) {
		t.Errorf("%s: the error holds what the token says: %v", what, err)
	}
}

const (
	unauthenticated = wirev1.Code_CODE_UNAUTHENTICATED
	unavailable     = wirev1.Code_CODE_UNAVAILABLE
	isOK            = wirev1.Code_CODE_OK
)

func TestGoodTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(rsaKey().Public(), "r", nil), jwkOf(rsaKey().Public(), "p", fields{"alg": "PS256"}), jwkOf(ecKey.Public(), "e", fields{"use": "sig"}), jwkOf(edKey.Public(), "d", nil))
		v := begin(t, w, issuersFile, Options{})
		for kid, s := range map[string]struct {
			alg string
			key any
		}{"r": {"RS256", rsaKey()}, "p": {"PS256", rsaKey()}, "e": {"ES256", ecKey}, "d": {"EdDSA", edKey}} {
			token := sign(s.alg, s.key, header(s.alg, kid, nil), good(fields{
				"jti": "t1", "aud": []string{"x", "other"}, "pm_client": "{user}-*", "pm_pub": "room/1/chat",
				"pm_claim": []string{"seat/#"}, "pm_group": []string{"g/#"}, "pm_profile": fields{"age": 7}, "realm": fields{"a": fields{"roles": []string{"x"}}},
			}))
			who, err := v.Verify(t.Context(), token)
			if err != nil {
				t.Fatalf("%s: %v", s.alg, err)
			}
			if who.User != "ann" || who.Proof != (identity.Proof{Issuer: "id", KeyID: kid, TokenID: "t1"}) || who.Profile["age"] != 7 ||
				!who.AllowsClient("ann-1") || who.AllowsClient("bob-1") || !who.Expires.Equal(time.Now().Add(time.Hour+DefaultLeeway)) {
				t.Errorf("%+v", who)
			}
			for verb, filter := range map[identity.Verb]string{identity.Subscribe: "room/7/chat", identity.Publish: "room/1/chat", identity.Claim: "seat/1", identity.Group: "g/x/#"} {
				if by, allowed := who.Allows(verb, filter); !allowed || !strings.HasSuffix(by[0].Source, "[0]") {
					t.Errorf("%v %s: %v %v", verb, filter, by, allowed)
				}
			}
			if same, _ := v.Verify(t.Context(), token); same != who {
				t.Error("the cache has no token that was verified")
			}
			if kid != "p" { // a key without its id: one of the algorithm is there
				wants(t, v, "no kid", sign(s.alg, s.key, fields{"alg": s.alg}, good(nil)), isOK, "")
			}
		}
		if w.asked.Load() != 1 {
			t.Errorf("%d fetches", w.asked.Load())
		}
	})
}

func TestBadTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		w.serve(jwkOf(rsaKey().Public(), "r", nil), jwkOf(ecKey.Public(), "e", nil), jwkOf(ecNext.Public(), "enc", fields{"use": "enc"}),
			jwkOf(secret, "oct", nil), jwkOf(ecNext, "private", nil))
		v := begin(t, w, issuersFile, Options{})
		es := func(h, claims any) string { return sign("ES256", ecKey, h, claims) }
		e := header("ES256", "e", nil)
		whole := es(e, good(nil))
		der := must(x509.MarshalPKIXPublicKey(rsaKey().Public()))
		public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		now := time.Now().Unix()
		many := good(nil)
		for i := range 100 {
			many[fmt.Sprint("c", i)] = 1
		}
		var filters []string
		for i := range identity.MaxRules + 1 {
			filters = append(filters, fmt.Sprint("r", i))
		}
		hs := func(with []byte, kid string) string { return sign("HS256", with, header("HS256", kid, nil), good(nil)) }
		for _, c := range []struct {
			name, token string
			code        wirev1.Code
			says        string
		}{
			{"whole", whole, isOK, ""},
			{"empty", "", unauthenticated, "three parts"},
			{"truncated", whole[:len(whole)-8], unauthenticated, ""},
			{"without its signature", whole[:strings.LastIndexByte(whole, '.')+1], unauthenticated, "signature"},
			{"two parts", whole[:strings.LastIndexByte(whole, '.')], unauthenticated, "three parts"},
			{"encrypted", whole + ".a.b", unauthenticated, "three parts"},
			{"huge", strings.Repeat("a", MaxToken+1), unauthenticated, "8192 at most"},
			{"10,000 claims", strings.Repeat(b64([]byte(`{"a":1}`)), 10_000), unauthenticated, "8192 at most"},
			{"100 claims", es(e, many), unauthenticated, "more than 64 members"},
			{"deep", es(e, `{"a":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}`), unauthenticated, "nested more than 8"},
			{"padded", strings.Replace(whole, ".", "=.", 1), unauthenticated, "base64url"},
			{"newline", strings.Replace(whole, ".", "\n.", 1), unauthenticated, "base64url"},
			{"none", sign("none", nil, header("none", "e", nil), good(nil)), unauthenticated, "alg is not one"},
			{"None", sign("none", nil, header("None", "e", nil), good(nil)), unauthenticated, "alg is not one"},
			{"HMAC with the public key in PEM", hs(public, "r"), unauthenticated, "alg is not one"},
			{"HMAC with the public key in DER", hs(der, "r"), unauthenticated, "alg is not one"},
			{"HMAC with a secret of the JWK set", hs(secret, "oct"), unauthenticated, "alg is not one"},
			{"algorithm of another key", sign("PS256", rsaKey(), header("PS256", "r", nil), good(nil)), unauthenticated, "no key"},
			{"key of another algorithm", sign("ES256", ecKey, header("RS256", "r", nil), good(nil)), unauthenticated, "signature"},
			{"key for encryption", sign("ES256", ecNext, header("ES256", "enc", nil), good(nil)), unauthenticated, "no key"},
			{"private key", sign("ES256", ecNext, header("ES256", "private", nil), good(nil)), unauthenticated, "no key"},
			{"another's signature", sign("ES256", other, e, good(nil)), unauthenticated, "signature"},
			{"key in the header", sign("ES256", other, header("ES256", "e", fields{"jwk": jwkOf(other.Public(), "e", nil)}), good(nil)), unauthenticated, "signature"},
			{"key of a URL", sign("ES256", other, header("ES256", "e", fields{"jku": "https://evil.example/keys", "x5u": "https://evil.example/c"}), good(nil)), unauthenticated, "signature"},
			{"jku of an honest issuer", es(header("ES256", "e", fields{"jku": "https://id.example/keys"}), good(nil)), isOK, ""},
			{"crit", es(header("ES256", "e", fields{"crit": []string{"exp"}}), good(nil)), unauthenticated, "crit"},
			{"b64", es(header("ES256", "e", fields{"b64": false}), good(nil)), unauthenticated, "b64"},
			{"typ", es(header("ES256", "e", fields{"typ": "logout+jwt"}), good(nil)), unauthenticated, "typ"},
			{"typ of access tokens", es(header("ES256", "e", fields{"typ": "application/AT+jwt"}), good(nil)), isOK, ""},
			{"alg is a number", es(`{"alg":1}`, good(nil)), unauthenticated, "alg"},
			{"two algs", es(`{"alg":"ES256","kid":"e","alg":"none"}`, good(nil)), unauthenticated, "two members"},
			{"two subs", es(e, `{"sub":"a","s\u0075b":"b"}`), unauthenticated, "two members"},
			{"two names deep inside", es(e, `{"x":[{"a":1,"a":2}]}`), unauthenticated, "two members"},
			{"not JSON", es(e, `{"sub":`), unauthenticated, "JSON"},
			{"two objects", es(e, `{}{}`), unauthenticated, "JSON"},
			{"null", es(e, `null`), unauthenticated, "JSON"},
			{"array", es(e, `[]`), unauthenticated, "JSON"},
			{"not UTF-8", es(e, "{\"sub\":\"\xff\"}"), unauthenticated, "UTF-8"},
			{"lone surrogate", es(e, good(fields{"sub": json.RawMessage(`"\ud800"`)})), unauthenticated, "UTF-8"},
			{"SUB", es(e, good(fields{"sub": nil, "SUB": "ann"})), unauthenticated, "sub is missing"},
			{"no sub", es(e, good(fields{"sub": nil})), unauthenticated, "sub is missing"},
			{"sub is a number", es(e, good(fields{"sub": 7})), unauthenticated, "sub must be a string"},
			{"sub is null", es(e, good(fields{"sub": json.RawMessage("null")})), unauthenticated, "sub must be a string"},
			{"sub is +", es(e, good(fields{"sub": "+"})), unauthenticated, "must not contain"},
			{"sub has a level", es(e, good(fields{"sub": "a/b"})), unauthenticated, "must not contain"},
			{"another mesh", es(e, good(fields{"aud": "s3cr3t"})), unauthenticated, "aud"},
			{"no aud", es(e, good(fields{"aud": nil})), unauthenticated, "aud"},
			{"another issuer", es(e, good(fields{"iss": "https://s3cr3t.example"})), unauthenticated, "iss"},
			{"no iss", es(e, good(fields{"iss": nil})), unauthenticated, "iss"},
			{"expired", es(e, good(fields{"exp": now - 30})), wirev1.Code_CODE_TOKEN_EXPIRED, "over"},
			{"expired within the leeway", es(e, good(fields{"exp": now - 29})), isOK, ""},
			{"no exp", es(e, good(fields{"exp": nil})), unauthenticated, "no exp"},
			{"exp is text", es(e, good(fields{"exp": "9999999999"})), unauthenticated, "exp must be"},
			{"exp below 0", es(e, good(fields{"exp": -1})), unauthenticated, "exp must be"},
			{"exp beyond time", es(e, good(fields{"exp": json.RawMessage("1e300")})), unauthenticated, "exp must be"},
			{"exp null", es(e, good(fields{"exp": json.RawMessage("null")})), unauthenticated, "exp must be"},
			{"not yet", es(e, good(fields{"nbf": now + 31})), unauthenticated, "nbf"},
			{"nearly", es(e, good(fields{"nbf": now + 30})), isOK, ""},
			{"issued later", es(e, good(fields{"iat": now + 31})), unauthenticated, "iat"},
			{"misspelled", es(e, good(fields{"pm_clients": "x"})), unauthenticated, "begins with pm_"},
			{"empty pm_client", es(e, good(fields{"pm_client": []string{}})), unauthenticated, "pm_client"},
			{"bad filter", es(e, good(fields{"pm_sub": []string{"a//b"}})), unauthenticated, "pm_sub[0]"},
			{"braces", es(e, good(fields{"pm_pub": []string{"a", "u/{id}"}})), unauthenticated, "pm_pub[1]"},
			{"filter is a number", es(e, good(fields{"pm_sub": []any{1}})), unauthenticated, "pm_sub must"},
			{"too many filters", es(e, good(fields{"pm_sub": filters})), unauthenticated, "65 values, 64"},
			{"profile", es(e, good(fields{"pm_profile": fields{"a": "x"}})), unauthenticated, "pm_profile"},
			{"profile null", es(e, good(fields{"pm_profile": fields{"a": nil}})), unauthenticated, "pm_profile"},
		} {
			wants(t, v, c.name, c.token, c.code, c.says)
		}
		if w.asked.Load() != 1 {
			t.Errorf("%d requests", w.asked.Load())
		}
	})
}

// A token that was found good is refused once its time is over or its key was taken back.
func TestTheCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil), jwkOf(ecNext.Public(), "n", nil))
		v := begin(t, w, issuersFile, Options{CacheBytes: 8 << 10})
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(nil))
		short := sign("ES256", ecNext, header("ES256", "n", nil), good(fields{"exp": time.Now().Add(time.Minute).Unix()}))
		wants(t, v, "good", token, isOK, "")
		wants(t, v, "short", short, isOK, "")
		<-time.After(time.Minute + DefaultLeeway)
		wants(t, v, "over", short, wirev1.Code_CODE_TOKEN_EXPIRED, "")
		w.serve(jwkOf(ecNext.Public(), "n", nil))
		<-time.After(DefaultRefresh)
		synctest.Wait()
		wants(t, v, "its key is gone", token, unauthenticated, "no key")
		for i := range 100 {
			wants(t, v, "many", sign("ES256", ecNext, header("ES256", "n", nil), good(fields{"jti": fmt.Sprint(i)})), isOK, "")
		}
		if v.cache.all.Cost() > 8<<10 || v.cache.all.Len() == 0 {
			t.Errorf("%d bytes, %d tokens", v.cache.all.Cost(), v.cache.all.Len())
		}
	})
}

// Whoever shows tokens with made-up key ids causes a fetch each cooldown at most, and a true
// rotation is taken within one all the same.
func TestRotationUnderHammering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{})
		next := sign("ES256", ecNext, header("ES256", "n", nil), good(nil))
		synctest.Wait()
		began := time.Now()
		<-time.After(time.Second)
		w.serve(jwkOf(ecNext.Public(), "n", nil))
		wants(t, v, "new key", next, unavailable, "fetched again")
		hammer(t, v, 0, 10_000)
		<-time.After(time.Until(began.Add(DefaultCooldown)))
		synctest.Wait()
		wants(t, v, "new key, a cooldown later", next, isOK, "")
		hammer(t, v, 10_000, 10_000)
		if asked := w.asked.Load(); asked != 2 {
			t.Errorf("%d fetches in one cooldown", asked)
		}
		<-time.After(time.Second)
		made := sign("ES256", ecKey, header("ES256", "made-up", nil), good(nil))
		wants(t, v, "made up", made, unavailable, "fetched again")
		<-time.After(DefaultCooldown)
		synctest.Wait()
		wants(t, v, "made up, once it is known", made, unauthenticated, "no key")
		if n := len((*v.issuers.Load())["https://id.example"].missed); n > mostMissed {
			t.Errorf("%d ids are remembered", n)
		}
	})
}

// Keys are kept while the issuer is away or answers something that is no set of keys, until a limit
// that was set; at the start there are none.
func TestIssuerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		set := jsonOf(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil)}})
		down := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
		w.set(down)
		v := begin(t, w, strings.Replace(issuersFile, `"audiences"`, `"max_stale": "2h", "audiences"`, 1), Options{})
		token := func(jti string) string {
			return sign("ES256", ecKey, header("ES256", "e", nil), good(fields{"jti": jti, "exp": time.Now().Add(9 * time.Hour).Unix()}))
		}
		wants(t, v, "at the start", token("0"), unavailable, "can't be had")
		w.set(func(*http.Request) (*http.Response, error) { return ok(bytes.NewReader(set)), nil })
		<-time.After(DefaultCooldown + time.Second)
		wants(t, v, "back", token("1"), isOK, "")
		answers := map[string]func(*http.Request) (*http.Response, error){
			"down":    down,
			"slow":    func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() },
			"10 MiB":  func(*http.Request) (*http.Response, error) { return ok(io.LimitReader(endless{}, 10<<20)), nil },
			"garbage": func(*http.Request) (*http.Response, error) { return ok(strings.NewReader("<html>")), nil },
			"no keys": func(*http.Request) (*http.Response, error) { return ok(strings.NewReader(`{"keys":[]}`)), nil },
			"null":    func(*http.Request) (*http.Response, error) { return ok(strings.NewReader(`{"keys":[null,7,{}]}`)), nil },
			"65 keys": func(*http.Request) (*http.Response, error) {
				return ok(strings.NewReader(`{"keys":[` + strings.Repeat("{},", 64) + "{}]}")), nil
			},
			"redirect": func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"https://evil.example"}}, Body: http.NoBody}, nil
			},
		}
		for name, answer := range answers {
			asked := w.asked.Load()
			w.set(answer)
			<-time.After(DefaultCooldown)
			began := time.Now()
			_, err := v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", "unknown "+name, nil), good(nil)))
			if took := time.Since(began); took > fetchTimeout || code.Of(err) != unavailable {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			synctest.Wait()
			if n := w.asked.Load() - asked; n < 1 || n > 2 {
				t.Errorf("%s: %d requests", name, n)
			}
			wants(t, v, name, token(name), isOK, "")
		}
		w.set(down)
		last := token("last")
		wants(t, v, "before", last, isOK, "")
		<-time.After(2 * time.Hour)
		wants(t, v, "stale", last, unavailable, "can't be had")
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// Callers who find no turn until their time is over are told to come again, and those who wait for
// an issuer take no turn.
func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &web{}
		w.serve(jwkOf(ecKey.Public(), "e", nil))
		v := begin(t, w, issuersFile, Options{Concurrency: 1, Waiting: 1})
		token := sign("ES256", ecKey, header("ES256", "e", nil), good(nil))
		synctest.Wait()
		v.room <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ended := make(chan error)
		go func() { _, err := v.Verify(ctx, token); ended <- err }()
		synctest.Wait()
		wants(t, v, "a second one that waits", token, wirev1.Code_CODE_OVERLOADED, "too many")
		if err := <-ended; code.Of(err) != wirev1.Code_CODE_OVERLOADED || code.From(err).RetryAfter == 0 {
			t.Errorf("after its time: %v", err)
		}
		<-v.room
		<-time.After(DefaultCooldown)
		v.most = 1024
		block := make(chan struct{})
		w.set(func(*http.Request) (*http.Response, error) { <-block; return nil, errors.New("late") })
		for i := range 300 {
			go func() {
				_, err := v.Verify(t.Context(), sign("ES256", ecKey, header("ES256", fmt.Sprint(i), nil), good(nil)))
				ended <- err
			}()
		}
		for range 300 - mostWaiting {
			if err := <-ended; code.Of(err) != unavailable {
				t.Errorf("beyond those who may wait: %v", err)
			}
		}
		wants(t, v, "while others wait for the issuer", token, isOK, "")
		close(block)
		for range mostWaiting {
			if err := <-ended; code.Of(err) != unavailable {
				t.Error(err)
			}
		}
	})
}

func TestDiscovery(t *testing.T) {
	file := strings.Replace(issuersFile, `"jwks_url": "https://id.example/keys"`, `"discovery": true`, 1)
	set := jsonOf(fields{"keys": []fields{jwkOf(ecKey.Public(), "e", nil)}})
	for document, want := range map[string]wirev1.Code{
		`{"issuer":"https://id.example","jwks_uri":"https://keys.example/x"}`:  isOK,
		`{"issuer":"https://id.example/","jwks_uri":"https://keys.example/x"}`: unavailable,
		`{"issuer":"https://id.example","jwks_uri":"http://keys.example/x"}`:   unavailable,
		`{"issuer":"https://id.example"}`:                                      unavailable,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &web{}
			w.set(func(r *http.Request) (*http.Response, error) {
				if r.URL.String() == "https://id.example/.well-known/openid-configuration" {
					return ok(strings.NewReader(document)), nil
				}
				return ok(bytes.NewReader(set)), nil
			})
			wants(t, begin(t, w, file, Options{}), document, sign("ES256", ecKey, header("ES256", "e", nil), good(nil)), want, "can't be had")
		})
	}
}

func FuzzVerify(f *testing.F) {
	set, err := newKeySet([]*key{newKey("e", "ES256", ecKey.Public(), nil)}, 0)
	if err != nil {
		f.Fatal(err)
	}
	issuers, err := parseIssuers([]byte(issuersFile))
	if err != nil {
		f.Fatal(err)
	}
	v := New(issuers, Options{})
	ring := (*v.issuers.Load())["https://id.example"]
	ring.current.Store(&fetched{set: set, began: time.Now()})
	close(ring.ended)
	ring.ended, ring.began = nil, time.Now().Add(time.Hour)
	f.Add(string(jsonOf(header("ES256", "e", nil))), string(jsonOf(good(nil))), false)
	f.Add(`{"alg":"none"}`, `{"sub":"+"}`, true)
	f.Add(`{"alg":"ES256","kid":"e"}`, `{"iss":"https://id.example","aud":["mesh"],"sub":"a","exp":9e9,"pm_sub":"user/{user}"}`, false)
	f.Fuzz(func(t *testing.T, head, claims string, raw bool) {
		token := head + "." + claims + ".AAAA"
		if !raw {
			token = sign("ES256", ecKey, head, claims)
		}
		who, err := v.Verify(t.Context(), token)
		var refused *code.Error
		switch {
		case err == nil && (raw || who.Check() != nil || !time.Now().Before(who.Expires)):
			t.Fatalf("%q passes as %+v", token, who)
		case err != nil && (!errors.As(err, &refused) || who != nil):
			t.Fatalf("%v", err)
		}
	})
}

func FuzzClaims(f *testing.F) {
	f.Add([]byte(`{"sub":"ann","pm_sub":["a/{user}/#"],"pm_profile":{"a":1}}`), "p:")
	f.Fuzz(func(t *testing.T, data []byte, prefix string) {
		claims, err := Members(data, MaxClaims, MaxNesting)
		if err != nil {
			return
		}
		_, _, _ = checkTimes(claims, time.Unix(1, 0), 0)
		if who, err := principal(claims, prefix); err == nil && (identity.CheckUser(who.User) != nil || !strings.HasPrefix(who.User, prefix)) {
			t.Fatalf("%q is %+v", data, who)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	w := &web{}
	w.serve(jwkOf(ecKey.Public(), "e", nil), jwkOf(rsaKey().Public(), "r", nil), jwkOf(edKey.Public(), "d", nil))
	path := filepath.Join(b.TempDir(), "secret")
	if err := os.WriteFile(path, secret, 0o600); err != nil {
		b.Fatal(err)
	}
	byURL := begin(b, w, issuersFile, Options{})
	byFile := begin(b, w, string(jsonOf(fields{"issuers": []fields{{
		"name": "id", "url": "https://id.example", "audiences": []string{"mesh"}, "hs256_secret_file": path,
	}}})), Options{})
	for _, of := range []struct {
		alg, kid string
		key      any
		v        *Verifier
	}{{"ES256", "e", ecKey, byURL}, {"RS256", "r", rsaKey(), byURL}, {"EdDSA", "d", edKey, byURL}, {"HS256", "", secret, byFile}} {
		var tokens [1024]string
		for i := range tokens {
			tokens[i] = sign(of.alg, of.key, header(of.alg, of.kid, nil), good(fields{"jti": fmt.Sprint(i)}))
		}
		for name, size := range map[string]int{"cached": 16 << 20, "uncached": 1} {
			b.Run(of.alg+" "+name, func(b *testing.B) {
				of.v.cache = newCache(size)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := of.v.Verify(b.Context(), tokens[i%len(tokens)]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Whatever a backend answers is bounded, and who is let in has a user and an end.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"sub": "ann", "expires_in": 60, "cache_seconds": 3, "pm_sub": ["a/{user}/#"], "pm_profile": {"a": 1}}`))
	f.Add([]byte(`{"sub": "ann", "exp": 4000000000.5, "pm_group": "g/a"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		now := time.Now()
		a, err := ReadAnswer(data, now, now)
		if err != nil {
			return
		}
		if a.Who.Check() != nil || !a.Who.Expires.After(now) || a.Cache < 0 || a.Cache > maxCacheSeconds*time.Second {
			t.Errorf("%q: %+v", data, a)
		}
	})
}

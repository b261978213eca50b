package policy

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
)

func TestDefaultsOfClaims(t *testing.T) {
	p := of(&pushmeshv1.Namespace{Prefix: "seat", Policy: &pushmeshv1.Policy{}})
	want := Claims{
		Holders: 1, MaxWaiting: 10_000, TTL: 30 * time.Second, MaxTTL: time.Hour, Grace: 10 * time.Second, WaitTTL: 15 * time.Second, OfferTTL: 2 * time.Second,
	}
	if *p.Claims != want {
		t.Errorf("%+v, want %+v", *p.Claims, want)
	}
	for _, c := range []struct{ ttl, most, wantTTL, wantMost time.Duration }{
		{0, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		{0, 2 * time.Hour, 30 * time.Second, 2 * time.Hour},
		{3 * time.Hour, 0, 3 * time.Hour, 3 * time.Hour},
	} {
		got := claimsOf("seat", &pushmeshv1.ClaimPolicy{Ttl: durationpb.New(c.ttl), MaxTtl: durationpb.New(c.most)})
		if got.TTL != c.wantTTL || got.MaxTTL != c.wantMost {
			t.Errorf("ttl %v, max_ttl %v: %v, %v", c.ttl, c.most, got.TTL, got.MaxTTL)
		}
	}
	got := claimsOf("seat", &pushmeshv1.ClaimPolicy{Prepare: &pushmeshv1.ClaimPrepare{Url: "http://h/p"}}).Prepare
	if *got != (Prepare{Group: "seat", URL: "http://h/p", Deadline: time.Second, Concurrency: 1}) {
		t.Errorf("%+v", *got)
	}
}

func TestFaultsOfClaims(t *testing.T) {
	check := func(p *pushmeshv1.ClaimPolicy) error {
		return Check(&pushmeshv1.Namespace{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: p}})
	}
	prepare := func(url string) *pushmeshv1.ClaimPolicy {
		return &pushmeshv1.ClaimPolicy{Prepare: &pushmeshv1.ClaimPrepare{Url: url}}
	}
	for name, p := range map[string]*pushmeshv1.ClaimPolicy{
		"empty": {}, "http": prepare("http://10.0.0.1:8080/get?ready=1"), "https": prepare("https://example.org"), "grpc": prepare("grpc://[::1]:7"),
		"all": {Holders: 1000, MaxWaiting: 100_000, Ttl: durationpb.New(time.Second), MaxTtl: durationpb.New(time.Second), MaxClientPriority: 9},
	} {
		if err := check(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, p := range map[string]*pushmeshv1.ClaimPolicy{
		"holders": {Holders: 1001}, "line": {MaxWaiting: 100_001}, "priority": {MaxClientPriority: 10},
		"ttl": {Ttl: durationpb.New(time.Millisecond)}, "ttl above max_ttl": {Ttl: durationpb.New(time.Minute), MaxTtl: durationpb.New(time.Second)},
		"offer": {OfferTtl: durationpb.New(time.Millisecond)}, "no url": prepare(""), "ftp": prepare("ftp://h/p"), "no port": prepare("grpc://h"),
		"path": prepare("grpc://h:1/x"), "deadline": {Prepare: &pushmeshv1.ClaimPrepare{Url: "http://h", Deadline: durationpb.New(time.Hour)}},
		"concurrency": {Prepare: &pushmeshv1.ClaimPrepare{Url: "http://h", Concurrency: 65}},
	} {
		if check(p) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A secret in a URL is refused when it is put; what lies in a store with one is still understood.
func TestURLsWithSecretsAreNotPut(t *testing.T) {
	ns := func(url string) *pushmeshv1.Namespace {
		return &pushmeshv1.Namespace{Prefix: "seat", Policy: &pushmeshv1.Policy{Claims: &pushmeshv1.ClaimPolicy{Prepare: &pushmeshv1.ClaimPrepare{Url: url}}}}
	}
	if err := Check(ns("http://ann:s3cr3t@h/p")); err != nil {
		t.Errorf("what lies in a store: %v", err)
	}
	if err := Check(ns("http://ann:s3cr3t@h/p"), CheckSecrets); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("what is put: %v", err)
	}
	if err := Check(ns("http://h/p"), CheckSecrets); err != nil {
		t.Error(err)
	}
}

// Package meshfiletest draws files that a mesh takes, for tests.
package meshfiletest

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/pushmesh/pushmesh/cmd/pushmesh/internal/meshfile"
	"github.com/pushmesh/pushmesh/internal/identity/backends"
	"github.com/pushmesh/pushmesh/proto/gen/pushmeshv1"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

// File draws namespaces, teams and backends of few names, so that two files have some in common.
func File(t *rapid.T) *meshfile.File {
	f := &meshfile.File{Sections: map[string]bool{meshfile.Namespaces: true, meshfile.Teams: true, meshfile.Backends: true}}
	for _, prefix := range some(t, "prefix", "orders", "tenant/7", "room", "default", "yes", "17") {
		f.Namespaces = append(f.Namespaces, meshfile.Namespace{Namespace: &pushmeshv1.Namespace{Prefix: prefix, Policy: policy(t)}})
	}
	for _, name := range some(t, "team", "editors", "null", "crew-1") {
		one := meshfile.Team{Team: &pushmeshv1.Team{
			Name:      name,
			Subscribe: some(t, "subscribe", "doc/#", "note/{user}", "1/2"),
			Publish:   some(t, "publish", "doc/+/edit", "true"),
			Claim:     some(t, "claim", "seat/+"),
			Group:     some(t, "group", "crew/jobs/#"),
		}}
		if one.Managed = rapid.Bool().Draw(t, "managed"); one.Managed {
			one.Members = some(t, "member", "ann", "bob", "corp:7", "8", "~", "O'Hara, \"x\": y")
		}
		f.Teams = append(f.Teams, one)
	}
	for _, name := range some(t, "backend", "orders", "audit", "3") {
		f.Backends = append(f.Backends, meshfile.Backend{Key: rapid.Bool().Draw(t, "key"), Entry: backends.Entry{
			Name: name, Roles: some(t, "role", "publisher:orders/#", "auditor"), Certificates: some(t, "certificate", name+".example", "spiffe://x/"+name),
			Tokens: tokens(t, name),
			Limits: backends.Limits{Rate: rapid.IntRange(0, 2).Draw(t, "rate"), InFlight: rapid.IntRange(0, 2).Draw(t, "in flight")},
		}})
	}
	return f
}

func tokens(t *rapid.T, name string) (all []backends.TokenSubject) {
	for _, issuer := range some(t, "issuer", "corp", "0") {
		all = append(all, backends.TokenSubject{Issuer: issuer, Sub: name})
	}
	return all
}

// some of them; nil: none.
func some(t *rapid.T, label string, all ...string) []string {
	var out []string
	for _, one := range all {
		if rapid.Bool().Draw(t, label+" "+one) {
			out = append(out, one)
		}
	}
	return slices.Clip(out)
}

func policy(t *rapid.T) *pushmeshv1.Policy {
	duration := func(label string, low, high time.Duration) *durationpb.Duration {
		if !rapid.Bool().Draw(t, "has "+label) {
			return nil
		}
		return durationpb.New(time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, label)))
	}
	number := func(label string, most uint32) uint32 { return rapid.Uint32Range(0, most).Draw(t, label) }
	p := &pushmeshv1.Policy{
		Durable:          rapid.Bool().Draw(t, "durable"),
		Retention:        duration("retention", time.Second, 366*24*time.Hour),
		AckTimeout:       duration("ack_timeout", 10*time.Millisecond, time.Hour),
		MaxAttempts:      number("max_attempts", 50),
		DeadLetterTopic:  rapid.SampledFrom([]string{"", "dead", "7"}).Draw(t, "dead_letter_topic"),
		Overflow:         wirev1.Overflow(rapid.Int32Range(0, 3).Draw(t, "overflow")),
		Presence:         rapid.Bool().Draw(t, "presence"),
		MaxPayload:       number("max_payload", 1000),
		ProducerRate:     number("producer_rate", 1000),
		ProducerInFlight: number("producer_in_flight", 1000),
		ClientPublish:    rapid.Bool().Draw(t, "client_publish"),
		DedupeWindow:     duration("dedupe_window", time.Second, 24*time.Hour),
		ClientSubscribe:  pushmeshv1.ClientSubscribe(rapid.Int32Range(0, 1).Draw(t, "client_subscribe")),
		ClientHistory:    pushmeshv1.ClientHistory(rapid.Int32Range(0, 1).Draw(t, "client_history")),
		ClientPresence:   pushmeshv1.ClientPresence(rapid.Int32Range(0, 2).Draw(t, "client_presence")),

		ClientPresenceMembers: number("client_presence_members", 500),
		DeliveredEvents:       rapid.Bool().Draw(t, "delivered_events"),
	}
	if p.GetDurable() && p.GetClientHistory() == pushmeshv1.ClientHistory_CLIENT_HISTORY_GRANTED_UNSPECIFIED && rapid.Bool().Draw(t, "keeps") {
		p.Keep, p.MaxKept = pushmeshv1.Keep_KEEP_LAST, number("max_kept", 1000)
	}
	if rapid.Bool().Draw(t, "has max_redeliveries") {
		n := number("max_redeliveries", 2)
		p.MaxRedeliveries = &n
	}
	if rapid.Bool().Draw(t, "has claims") {
		p.Claims = &pushmeshv1.ClaimPolicy{Holders: number("holders", 2), Grace: duration("grace", time.Second, time.Minute), Clients: rapid.Bool().Draw(t, "clients")}
		if rapid.Bool().Draw(t, "prepare") {
			p.Claims.Prepare = &pushmeshv1.ClaimPrepare{Url: "http://prepare.example/?a=b#c", Concurrency: number("concurrency", 2)}
		}
	}
	switch rapid.IntRange(0, 3).Draw(t, "rank") {
	case 1:
		p.Rank = &pushmeshv1.RankPolicy{
			Window: duration("window", time.Millisecond, time.Second), Rest: pushmeshv1.RankPolicy_Rest(rapid.Int32Range(0, 1).Draw(t, "rest")),
			Weighted: &pushmeshv1.WeightedScorer{Bias: rapid.Float64Range(-10, 10).Draw(t, "bias"), HalfLife: duration("half_life", time.Second, time.Hour)},
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "weights") {
			if p.Rank.Weighted.Weights == nil {
				p.Rank.Weighted.Weights = map[string]float64{}
			}
			p.Rank.Weighted.Weights[fmt.Sprint(i)] = rapid.Float64Range(-1e9, 1e9).Draw(t, "weight")
		}
	case 2:
		p.Rank = &pushmeshv1.RankPolicy{
			Expression: &pushmeshv1.ExpressionScorer{Expression: "features.quality\n  + double(priority)"}, Diversify: &pushmeshv1.Diversify{Key: "topic", AtMost: 2},
		}
	case 3:
		p.Rank = &pushmeshv1.RankPolicy{Embedding: &pushmeshv1.EmbeddingScorer{Metric: pushmeshv1.EmbeddingScorer_METRIC_COSINE}, Filter: "priority > 1"}
	}
	return p
}

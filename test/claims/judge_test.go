package claims

import (
	"context"
	"strings"
	"testing"
	"time"
)

// most is how long the judge may think about one resource. None takes a second; a machine that is
// busy takes longer.
const most = time.Minute

// short are rules by which much ends by itself.
var short = Rules{Holders: 1, TTL: 60 * time.Millisecond, WaitTTL: 60 * time.Millisecond, OfferTTL: 60 * time.Millisecond}

// crowd of a fake: some hundred operations.
func crowd(t *testing.T, w world, rules Rules, seed uint64) *Verdict {
	t.Helper()
	c := &Crowd{
		APIs: (&fake{world: w}).serve(t), Prefix: "room", Desks: 6, Owners: 4, Pause: 2 * time.Millisecond, Absence: 2 * rules.TTL, Watches: true, Seed: seed, History: NewHistory(),
	}
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	go func() { // ends with the crowd
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ops := 0; ops < 400 && ctx.Err() == nil; ops, _ = c.History.Count() {
			<-tick.C
		}
		enough()
	}()
	c.Run(ctx)
	v := Judge(c.History, func(string) Rules { return rules }, most)
	t.Log(v)
	return v
}

// What a right service does is found right, with one holder and with several, with answers that get
// lost and operations that happen late, with holds that end.
func TestARightHistoryIsFoundRight(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		w     world
		rules Rules
	}{
		"one holder":    {world{holders: 1}, Rules{Holders: 1}},
		"three holders": {world{holders: 3}, Rules{Holders: 3}},
		"lossy":         {world{holders: 1, lossy: true}, Rules{Holders: 1}},
		"lossy, three":  {world{holders: 3, lossy: true}, Rules{Holders: 3}},
		"with ends":     {world{holders: 1, lossy: true, ttl: short.TTL, waitTTL: short.WaitTTL}, short},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if v := crowd(t, tt.w, tt.rules, 1); len(v.Breaches) > 0 || len(v.Open) > 0 {
				t.Fatalf("%s %v", v, v.Breaches)
			}
		})
	}
}

// Each fault that a service may have is found.
func TestAWrongHistoryIsFoundWrong(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{
		"grants twice", "numbers anew", "repeats tokens", "overtakes", "lets newcomers pass", "forgets", "renews with old tokens", "releases with old tokens",
		"releases for anybody", "miscounts", "answers before it commits", "ends early", "never expires",
	} {
		t.Run(strings.ReplaceAll(fault, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w, rules := world{fault: fault, holders: 1}, Rules{Holders: 1}
			if strings.HasPrefix(fault, "e") || strings.HasPrefix(fault, "never") {
				w.ttl, w.waitTTL = short.TTL, short.WaitTTL
				rules = short
			}
			for seed := range uint64(100) { // it may not show in what so few do
				if v := crowd(t, w, rules, seed); len(v.Breaches) > 0 {
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}

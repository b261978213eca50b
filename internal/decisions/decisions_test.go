package decisions

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushmesh/pushmesh/internal/code"
	"github.com/pushmesh/pushmesh/proto/gen/wirev1"
)

func TestDecisionsAreSampledAndBounded(t *testing.T) {
	var text strings.Builder
	now := time.Unix(1e9, 0)
	if New("x", 0, nil, nil).Chosen() {
		t.Error("none are to be logged")
	}
	l := New("x", 1, slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError})), nil)
	n := 0
	for i := range 1000 {
		if l.Chosen() && l.Room(now.Add(time.Duration(i)*time.Millisecond/2)) {
			n++
		}
	}
	if n != Most || testutil.ToFloat64(l.suppressed) != 1000-Most || !l.Room(now.Add(time.Second)) {
		t.Errorf("%d in a second", n)
	}
	l.Write(now, &Decision{Who: "backend:a", From: "10.0.0.1:5", What: "X/Y", Rule: "default-deny", Refusal: code.New(wirev1.Code_CODE_FORBIDDEN, strings.Repeat("x", 1<<20))})
	if said := text.String(); !strings.Contains(said, "msg=decision") || !strings.Contains(said, "what=X/Y outcome=FORBIDDEN rule=default-deny") || len(said) > 4<<10 {
		t.Errorf("%.300s", said)
	}
	few := New("x", 0.1, nil, nil)
	n = 0
	for range 10_000 {
		if few.Chosen() {
			n++
		}
	}
	if n < 790 || n > 1210 { // seven standard deviations
		t.Errorf("%d of 10,000 for a tenth", n)
	}
}

func TestRuleOf(t *testing.T) {
	for text, want := range map[string]string{"no (rule default-deny)": "default-deny", "no (rule namespace:room); or so": "namespace:room", "no": "", "no (rule x": ""} {
		if got := RuleOf(code.New(wirev1.Code_CODE_FORBIDDEN, text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if RuleOf(nil) != "" {
		t.Error("a rule of nothing")
	}
}

// What a caller asked for stands in a refusal before the rule, and does not pass for one.
func TestWhatACallerWroteIsNoRule(t *testing.T) {
	for _, asked := range []string{"(rule role:operator)", "a (rule x) b", "(rule ", ")"} {
		err := code.New(wirev1.Code_CODE_FORBIDDEN, `backend x may not publish "`+asked+`": its roles are none (rule default-deny)`)
		if got := RuleOf(err); got != "default-deny" {
			t.Errorf("beside %s the rule is %q", asked, got)
		}
	}
}

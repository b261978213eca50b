package survey

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func parse(t *testing.T, seconds int64, text string) *Metrics {
	t.Helper()
	m, err := Parse([]byte(text), time.Unix(seconds, 0))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRates(t *testing.T) {
	before := parse(t, 100, "# TYPE a_total counter\na_total{code=\"OK\"} 10\na_total{code=\"NO\"} 5\n")
	now := parse(t, 104, "# TYPE a_total counter\na_total{code=\"OK\"} 30\na_total{code=\"NO\"} 1\na_total{code=\"NEW\"} 8\n")
	for _, c := range []struct {
		before *Metrics
		name   string
		match  Match
		want   float64
		ok     bool
	}{
		{before, "a_total", Match{"code": "OK"}, 5, true},
		{before, "a_total", nil, 6, true},
		{before, "a_total", Match{"code": "NEW"}, 2, true},
		{before, "a_total", Match{"code": "NO"}, 0.25, true}, // began anew
		{before, "a_total", Match{"code": "OTHER"}, 0, false},
		{before, "b_total", nil, 0, false},
		{nil, "a_total", nil, 0, false},
		{now, "a_total", nil, 0, false}, // no time went by
	} {
		if got, ok := now.Rate(c.before, c.name, c.match); got != c.want || ok != c.ok {
			t.Errorf("%s %v: %v %v, want %v %v", c.name, c.match, got, ok, c.want, c.ok)
		}
	}
	if sum, ok := now.Sum("a_total", nil); sum != 39 || !ok {
		t.Errorf("sum %v %v", sum, ok)
	}
}

func histogram(counts ...int) string {
	text := "# TYPE h_seconds histogram\n"
	bounds := []string{"0.1", "0.2", "0.4", "+Inf"}
	for i, b := range bounds {
		text += fmt.Sprintf("h_seconds_bucket{le=%q} %d\n", b, counts[i])
	}
	return text + fmt.Sprintf("h_seconds_sum 1\nh_seconds_count %d\n", counts[len(counts)-1])
}

func TestQuantilesOfWhatCameSince(t *testing.T) {
	before := parse(t, 100, histogram(1000, 1000, 1000, 1000))
	now := parse(t, 101, histogram(1000, 1100, 1200, 1200))
	for _, c := range []struct {
		name   string
		before *Metrics
		now    *Metrics
		q      float64
		want   float64
		ok     bool
	}{
		{"median on a bound", before, now, 0.5, 0.2, true},
		{"within a bucket", before, now, 0.75, 0.3, true},
		{"the greatest", before, now, 1, 0.4, true},
		{"since the beginning", nil, now, 0.5, 0.06, true},
		{"nothing came", now, now, 0.5, 0, false},
		{"a new process", parse(t, 100, histogram(5000, 6000, 7000, 8000)), now, 0.5, 0.06, true},
		{"above the last bound", before, parse(t, 101, histogram(1000, 1000, 1000, 1010)), 0.99, 0.4, true},
		{"nothing there", before, parse(t, 101, ""), 0.5, 0, false},
	} {
		got, ok := c.now.Quantile(c.before, "h_seconds", nil, c.q)
		if math.Abs(got-c.want) > 1e-9 || ok != c.ok {
			t.Errorf("%s: %v %v, want %v %v", c.name, got, ok, c.want, c.ok)
		}
	}
	var none *Metrics
	if _, ok := none.Sum("h_seconds", nil); ok {
		t.Error("no metrics have a sum")
	}
}

func TestWhatIsNoMetrics(t *testing.T) {
	if _, err := Parse([]byte("<html>"), time.Now()); err == nil {
		t.Error("it is taken")
	}
}

package linkhealth

import (
	"math/rand/v2"
	"testing"
)

// rule says with each heartbeat whether the connection is to be closed; then the client comes back,
// on another connection.
type rule func() func(reported, smoothed uint32) bool

func ours() func(reported, smoothed uint32) bool {
	b, l := &Book{}, new(Link)
	return func(reported, smoothed uint32) bool {
		_, v := b.Judge(l, reported, smoothed)
		return v.Unhealthy()
	}
}

// fixed is a limit of a second for so many round trips in a row.
func fixed(times int) rule {
	return func() func(reported, smoothed uint32) bool {
		row := 0
		return func(reported, _ uint32) bool {
			if row++; reported <= 1_000_000 {
				row = 0
			}
			return row >= times
		}
	}
}

// play has a rule judge a trace, and says at which heartbeats it closed.
func play(us []uint32, of rule, reports bool) (closed []int) {
	judge, kernel := of(), smoother(0)
	for i, rtt := range us {
		reported, smoothed := rtt, kernel.add(rtt)
		if !reports {
			reported = 0
		}
		if judge(reported, smoothed) {
			closed = append(closed, i)
			judge, kernel = of(), 0
		}
	}
	return closed
}

// Links that are only slow, or only now and then, are closed at least 60 % less often than by a
// limit of a second.
func TestReplayedTracesHaveFewFalseKicks(t *testing.T) {
	const clients, day = 16, 24 * hour
	t.Log("kicks of healthy clients a client and day:   a second  three in a row  this rule  by the kernel alone")
	var all [4]int
	for k, kind := range kinds {
		var kicks [4]int
		for i := range uint64(clients) {
			us := trace(kind.next(rand.New(rand.NewPCG(uint64(k), i))), day)
			kicks[0] += len(play(us, fixed(1), true))
			kicks[1] += len(play(us, fixed(3), true))
			kicks[2] += len(play(us, ours, true))
			kicks[3] += len(play(us, ours, false))
		}
		t.Logf("%-38s %15.2f %15.2f %10.2f %20.2f", kind.name, per(kicks[0], clients), per(kicks[1], clients), per(kicks[2], clients), per(kicks[3], clients))
		for i := range all {
			all[i] += kicks[i]
		}
		if kicks[0] > clients && kicks[2]*10 > kicks[0]*4 {
			t.Errorf("%s: %d false kicks, and %d by a limit of a second", kind.name, kicks[2], kicks[0])
		}
	}
	t.Logf("%-38s %15d %15d %10d %20d", "together", all[0], all[1], all[2], all[3])
	if all[2]*10 > all[0]*4 || all[3]*10 > all[0]*4 {
		t.Errorf("%d false kicks, %d without reports, and %d by a limit of a second", all[2], all[3], all[0])
	}
}

func per(n, clients int) float64 { return float64(n) / float64(clients) }

// A link that is ill for good is found within mostBeats heartbeats, whatever it was before; where
// clients report nothing, within mostUnreported.
func TestIllLinksAreFound(t *testing.T) {
	const clients, before, after, mostBeats, mostUnreported = 16, 3 * hour, hour, 4, 10
	for k, kind := range kinds {
		worst := [2]int{}
		for i := range uint64(clients) {
			r := rand.New(rand.NewPCG(uint64(k), i))
			us := trace(illFrom(r, kind.next(r), before), before+after)
			for how, reports := range []bool{true, false} {
				found := after
				for _, at := range play(us, ours, reports) {
					if at >= before {
						found = at - before + 1
						break
					}
				}
				worst[how] = max(worst[how], found)
			}
		}
		t.Logf("%-16s found with heartbeat %d at the latest, %d by the kernel alone", kind.name, worst[0], worst[1])
		if worst[0] > mostBeats || worst[1] > mostUnreported {
			t.Errorf("%s: %d heartbeats, %d by the kernel alone", kind.name, worst[0], worst[1])
		}
	}
}

// What is kept of a link, and the quanta that it is kept in, hardly change what the rule finds with
// everything kept.
func TestRecordsJudgeReplayedTracesAsTheRuleDoes(t *testing.T) {
	const clients, day = 8, 24 * hour
	for k, kind := range kinds {
		judged, spikes, other, records := 0, 0, 0, 0
		for i := range uint64(clients) {
			var b Book
			var l Link
			e := &exact{}
			for _, us := range trace(kind.next(rand.New(rand.NewPCG(uint64(k), i))), day) {
				_, got := b.Judge(&l, us, 0)
				want := e.judge(us)
				judged++
				records += b.Taken()
				if want != Well {
					spikes++
				}
				if got != want {
					other++
				}
			}
		}
		t.Logf("%-16s %6d round trips, %5d spikes, %3d judged otherwise; %2d %% of the time with a record", kind.name, judged, spikes, other, records*100/judged)
		if other*50 > spikes {
			t.Errorf("%s: %d of %d are judged otherwise, with %d spikes", kind.name, other, judged, spikes)
		}
	}
}

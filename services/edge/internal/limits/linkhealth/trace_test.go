package linkhealth

import (
	"math"
	"math/rand/v2"
)

// A trace is what the heartbeats of one client meet, one each 30 s, in microseconds. Each kind is a
// model of a network, with what is known of it:
//
//   - cellular: a radio that idles between heartbeats (its tail is some 10 s) has to be promoted
//     for each: 50 to 300 ms with LTE, 1 to 2.5 s with 3G. Handovers and lost coverage hold packets
//     back for hundreds of milliseconds to tens of seconds, after which they come.
//   - bufferbloat: an upload that fills a modem's queue adds hundreds of milliseconds to more than
//     a second for as long as it lasts, and the queue goes up and down with TCP's window.
//   - Wi-Fi: power saving adds up to a beacon interval or three, roaming takes a second or some.
//   - satellites: 600 ms by the speed of light for geostationary ones, and a bulk transfer of a
//     neighbour's on top; 40 ms for low ones, with outages of seconds.
//
// None of these is better on another connection, so that closing one is a mistake. Ill ones are
// those of illFrom.
type kind struct {
	name string
	next func(*rand.Rand) func() float64 // milliseconds
}

// around is log-normal with a median, as round trips are about.
func around(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}

func between(r *rand.Rand, low, high float64) float64 { return low + (high-low)*r.Float64() }

// spell is something that begins with a heartbeat now and then and lasts for some of them.
type spell struct {
	each        float64 // heartbeats between the beginnings, in the mean
	short, long float64 // heartbeats that it lasts
	left        int
}

func (s *spell) on(r *rand.Rand) bool {
	if s.left > 0 {
		s.left--
		return true
	}
	if r.Float64() < 1/s.each {
		s.left = int(between(r, s.short, s.long))
		return true
	}
	return false
}

const hour = 120 // heartbeats

var kinds = []kind{
	{"wired", func(r *rand.Rand) func() float64 {
		return func() float64 { return around(r, 12, 0.2) }
	}},
	{"Wi-Fi", func(r *rand.Rand) func() float64 {
		base, roam := between(r, 15, 60), spell{each: 2 * hour, short: 0, long: 1}
		return func() float64 {
			ms := around(r, base, 0.4)
			if r.Float64() < 0.1 {
				ms += between(r, 50, 300) // power saving
			}
			if roam.on(r) {
				ms += between(r, 500, 4000)
			}
			return ms
		}
	}},
	{"bufferbloat", func(r *rand.Rand) func() float64 {
		base, queue, upload := between(r, 20, 60), between(r, 300, 1400), spell{each: hour, short: 4, long: 30}
		return func() float64 {
			ms := around(r, base, 0.3)
			if upload.on(r) {
				ms += queue * between(r, 0.4, 1)
			}
			return ms
		}
	}},
	{"LTE on the move", func(r *rand.Rand) func() float64 {
		base, hole := between(r, 35, 90), spell{each: hour / 2, short: 0, long: 2}
		return func() float64 {
			ms := around(r, base, 0.5) + between(r, 50, 300)
			if r.Float64() < 0.05 { // a handover on the way
				ms += around(r, 600, 0.8)
			}
			if hole.on(r) {
				ms += between(r, 1000, 20_000)
			}
			return ms
		}
	}},
	{"3G", func(r *rand.Rand) func() float64 {
		base, hole := between(r, 120, 300), spell{each: hour, short: 0, long: 2}
		return func() float64 {
			ms := around(r, base, 0.4)
			if r.Float64() < 0.7 {
				ms += between(r, 600, 1700) // promoted from idle
			}
			if hole.on(r) {
				ms += between(r, 1000, 15_000)
			}
			return ms
		}
	}},
	{"geostationary", func(r *rand.Rand) func() float64 {
		bulk := spell{each: hour, short: 2, long: 20}
		return func() float64 {
			ms := 590 + around(r, 60, 0.6)
			if bulk.on(r) {
				ms += between(r, 100, 700)
			}
			return ms
		}
	}},
	{"low orbit", func(r *rand.Rand) func() float64 {
		outage := spell{each: hour / 2, short: 0, long: 1}
		return func() float64 {
			ms := around(r, 40, 0.3)
			if outage.on(r) {
				ms += between(r, 500, 5000)
			}
			return ms
		}
	}},
}

// illFrom has the link be ill from a heartbeat on: each round trip takes seconds more, as where
// packets come through by the third or fourth retransmission.
func illFrom(r *rand.Rand, healthy func() float64, at int) func() float64 {
	n := 0
	return func() float64 {
		ms := healthy()
		if n++; n > at {
			ms = max(5*ms, 4000) * between(r, 1, 2)
		}
		return ms
	}
}

// trace of so many heartbeats.
func trace(next func() float64, n int) (us []uint32) {
	for range n {
		us = append(us, uint32(next()*1000))
	}
	return us
}

package replay

import "time"

// offsets says when each say is due after the first one, at real pace: rooms follow one another in
// the order of the file, without a pause between them; the says of one minute are spread evenly
// over it.
func offsets(says []Say) []time.Duration {
	out := make([]time.Duration, len(says))
	var base time.Duration // when the current room began
	var days, last, first int
	room := -1
	for i := 0; i < len(says); {
		n := 1
		for i+n < len(says) && says[i+n].Room == says[i].Room && says[i+n].Minute == says[i].Minute {
			n++
		}
		minute := says[i].Minute
		switch {
		case says[i].Room != room:
			if room >= 0 {
				base = out[i-1]
			}
			room, days, first = says[i].Room, 0, minute
		case minute < last:
			days++ // past midnight
		}
		last = minute
		at := base + time.Duration(days*24*60+minute-first)*time.Minute
		for k := range n {
			out[i+k] = at + time.Duration(k)*time.Minute/time.Duration(n)
		}
		i += n
	}
	return out
}

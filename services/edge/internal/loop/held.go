package loop

import "time"

// Held says what held the loop up when its lag was last above 50 ms.
type Held struct {
	Lag time.Duration
	// Part of a turn that took longest since the tick before, and how long. Where that explains
	// little of the lag, the loop was not run.
	Part string
	Took time.Duration
}

// parts of a turn, as logs name them.
const (
	partPoll   = "poll"
	partAccept = "accept"
	partRead   = "read"
	partMail   = "mailbox"
	partWork   = "work"
	partTimers = "timers"
	partFlush  = "flush"
	partCloses = "closes"
)

// clock takes the time of a turn's parts. It is read once for each part that had something to do;
// the others take what the last reading was.
type clock struct {
	at      int64 // the last reading: when the part in hand began
	goes    bool  // the last turn went over into this one
	part    string
	longest int64 // since the tick before
}

// begins is called where a turn does. Between turns the loop may have waited.
func (l *Loop) begins() {
	if !l.clock.goes {
		l.clock.at = l.now()
	}
}

// did says that a part of the turn is over, and the next one begins. A part that had nothing to do
// took no time.
func (l *Loop) did(part string, something bool) {
	if something {
		l.clock.took(part, l.now())
	}
}

// took charges the time since the last reading to a part.
func (c *clock) took(part string, now int64) {
	if d := now - c.at; d > c.longest {
		c.longest, c.part = d, part
	}
	c.at = now
}

// sample takes the lag of a tick, and begins to look for the longest part anew.
func (l *Loop) sample(lag time.Duration) {
	if l.stats.Lag.add(lag); lag > lagWarning {
		l.stats.Held = Held{Lag: lag, Part: l.clock.part, Took: time.Duration(l.clock.longest)}
	}
	l.clock.part, l.clock.longest = "", 0
	l.judge(lag)
}

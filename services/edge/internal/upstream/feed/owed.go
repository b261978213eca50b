package feed

import "github.com/pushmesh/pushmesh/services/edge/internal/exchange"

// resendMost bounds the messages that Resend gives one loop at a time, and the topics that it looks
// at.
const resendMost = 1024

// Refused takes back a run that a loop had no room for. Of the durable topics in it nothing more is
// handed to the loop until Resent: what it missed must come first. It returns how many ephemeral
// messages are lost.
func (f *Feed) Refused(loop int, run []*exchange.Message) (lost int) {
	for _, m := range run {
		if m.Epoch == 0 {
			lost++
			continue
		}
		st := f.topics[m.Topic]
		if st == nil || st.epoch != m.Epoch {
			continue
		}
		if st.owed == nil {
			st.owed = map[int]uint64{}
		}
		if _, owes := st.owed[loop]; !owes {
			st.owed[loop] = m.Seq
			if f.owing[loop] == nil {
				f.owing[loop] = map[*state]bool{}
			}
			f.owing[loop][st] = true
		}
		st.tail = m
	}
	return lost
}

// Owing reports whether a loop misses anything.
func (f *Feed) Owing() bool { return len(f.owing) > 0 }

// Resend calls post for each loop that misses something, with some of what it missed where that is
// still at hand, else with the last message alone, which shows the loop its hole. post reports
// whether the loop had room; Resend is false where one had not.
func (f *Feed) Resend(post func(loop int, run []*exchange.Message) bool) (taken bool) {
	taken = true
	for loop, topics := range f.owing {
		var run []*exchange.Message
		var sent []*state
		for st := range topics {
			if len(run) >= resendMost || len(sent) >= resendMost {
				break
			}
			sent = append(sent, st)
			if f.mask(st)&(1<<loop) != 0 {
				run = append(run, st.since(st.owed[loop])...)
			}
		}
		if len(run) > 0 && !post(loop, run) {
			taken = false
			continue
		}
		for _, st := range sent {
			f.settleDebt(loop, st)
		}
	}
	return taken
}

func (f *Feed) settleDebt(loop int, st *state) {
	delete(st.owed, loop)
	if len(st.owed) == 0 {
		st.owed, st.tail = nil, nil
	}
	if delete(f.owing[loop], st); len(f.owing[loop]) == 0 {
		delete(f.owing, loop)
	}
}

func (st *state) since(seq uint64) []*exchange.Message {
	if len(st.ring) > 0 && st.ring[0].Seq <= seq && seq <= st.last {
		return st.ring[seq-st.ring[0].Seq:]
	}
	return []*exchange.Message{st.tail}
}

package state

// Status of a connection, for the loop.
type Status struct {
	Gone    bool // the slot is free: the socket must have ended
	Hold    bool // read nothing for now; Resumed names the slot when that ends
	Closing bool // read and discard
	Owes    bool // has bytes to be sent
	Overdue bool // had its time for closing: end the socket at once
	Early   bool // not welcomed yet
}

// Status of the connection at a time. answers is how many bytes of them it may have before it is
// not read any more.
func (c *Conn) Status(now int64, answers int) Status {
	return Status{
		Gone: c.Phase == Free, Hold: c.Holds(answers), Closing: c.Phase == Closing, Owes: c.Out.Len() > 0,
		Overdue: c.Phase == Closing && now >= c.Deadline, Early: c.Phase < Open,
	}
}

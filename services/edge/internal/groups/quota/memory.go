package quota

// Memory counts the bytes that are kept for clients, against a bound. Newcomers are taken up to
// three quarters of it, so that they leave room for what those who are there are sent. It is not
// safe for concurrent use.
type Memory struct{ used, most int64 }

// NewMemory makes one of so many bytes; 0: no bound.
func NewMemory(most int64) Memory { return Memory{most: most} }

// Add counts bytes that are kept from now on, or, where n is negative, no longer.
func (m *Memory) Add(n int) { m.used += int64(n) }

// Used bytes now.
func (m *Memory) Used() int64 { return m.used }

// Takes reports whether somebody new may come.
func (m *Memory) Takes() bool { return m.most == 0 || m.used < m.most/4*3 }

// Fits reports whether n bytes more are within the bound.
func (m *Memory) Fits(n int) bool { return m.most == 0 || m.used+int64(n) <= m.most }

// Full reports whether the bound is reached.
func (m *Memory) Full() bool { return m.most != 0 && m.used >= m.most }

// Eased reports whether so much is free that who waited for it can go on for a while.
func (m *Memory) Eased() bool { return m.most == 0 || m.used < m.most-m.most/16 }

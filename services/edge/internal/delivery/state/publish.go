package state

import "slices"

// Publish is a message of the client that a router has not answered for.
type Publish struct {
	ID    uint32 // 0: the client wants no answer
	Bytes uint32 // that its connection is charged
}

// publishing is the place in Publishes of the first with an id; below 0: there is none.
func (c *Conn) publishing(id uint32) int {
	return slices.IndexFunc(c.Publishes, func(p Publish) bool { return p.ID == id })
}

// AddPublish notes that a message of so many bytes is on its way, and says for which address that
// counts: it is asked for where none is on its way.
func (s *Conns) AddPublish(c *Conn, id uint32, bytes int, origin func(*Conn) string) string {
	more := s.More(c)
	if more.Publishes == nil {
		more.PublishFrom = origin(c)
	}
	more.Publishes = append(more.Publishes, Publish{id, uint32(bytes)})
	return more.PublishFrom
}

// TakePublish notes the answer to one, and says how many bytes it had. Those with id 0 are not told
// apart: each answer is for the oldest, so that all is given back once all are answered.
func (s *Conns) TakePublish(c *Conn, id uint32) (bytes int, found bool) {
	i := c.publishing(id)
	if i < 0 {
		return 0, false
	}
	bytes = int(c.Publishes[i].Bytes)
	more := s.More(c)
	if more.Publishes = slices.Delete(more.Publishes, i, i+1); len(more.Publishes) == 0 {
		more.Publishes, more.PublishFrom = nil, ""
		s.Less(c)
	}
	return bytes, true
}

// EndPublishes notes that no answer will be waited for, and says how many bytes all had.
func (s *Conns) EndPublishes(c *Conn) (bytes int) {
	for _, p := range c.Publishes {
		bytes += int(p.Bytes)
	}
	if c.Publishes != nil {
		more := s.More(c)
		more.Publishes, more.PublishFrom = nil, ""
		s.Less(c)
	}
	return bytes
}

package topic

// ShardSet is a set of shards as messages carry it: shard n is bit n % 8, from the lowest, of byte
// n / 8.
type ShardSet []byte

// NewShardSet is empty.
func NewShardSet() ShardSet { return make(ShardSet, (Shards+7)/8) }

// ShardSetOf are the shards for which in says so.
func ShardSetOf(in func(n int) bool) ShardSet {
	s := NewShardSet()
	for n := range Shards {
		if in(n) {
			s.Add(n)
		}
	}
	return s
}

// Add puts a shard in.
func (s ShardSet) Add(n int) { s[n/8] |= 1 << (n % 8) }

// Remove takes a shard out.
func (s ShardSet) Remove(n int) { s[n/8] &^= 1 << (n % 8) }

// Has reports whether a shard is in.
func (s ShardSet) Has(n int) bool { return s[n/8]&(1<<(n%8)) != 0 }

// Union puts in what another has; other may be shorter or longer, as it came.
func (s ShardSet) Union(other ShardSet) {
	for i := range min(len(s), len(other)) {
		s[i] |= other[i]
	}
}

// Full reports whether every shard is in.
func (s ShardSet) Full() bool {
	for n := range Shards {
		if !s.Has(n) {
			return false
		}
	}
	return true
}

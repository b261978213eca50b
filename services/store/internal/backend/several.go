package backend

// Several databases that are used as one, each with some of the shards.
type Several interface {
	Backend
	// Databases that hold shards; their number and order never change.
	Databases() []Log
	// Place of a shard in Databases now; -1: on the move, nobody shall own it.
	Place(shard int) int
}

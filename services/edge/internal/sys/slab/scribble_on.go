//go:build race || scribble

package slab

// Scribbles says that this build overwrites what is freed. Tests with the race detector do.
const Scribbles = true

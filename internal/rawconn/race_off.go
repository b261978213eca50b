//go:build !race

package rawconn

const detecting = false

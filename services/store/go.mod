module github.com/pushmesh/pushmesh/services/store

go 1.26.0

require (
	github.com/pushmesh/pushmesh/internal v0.0.0
	github.com/pushmesh/pushmesh/proto v0.0.0
)

replace github.com/pushmesh/pushmesh/proto => ../../proto

replace github.com/pushmesh/pushmesh/internal => ../../internal

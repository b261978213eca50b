module github.com/pushmesh/pushmesh/client

go 1.26.0

require (

	github.com/pushmesh/pushmesh/proto v0.0.0
)

replace github.com/pushmesh/pushmesh/proto => ../proto


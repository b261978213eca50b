module github.com/pushmesh/pushmesh/tools/release

go 1.26.0

require golang.org/x/mod v0.34.0

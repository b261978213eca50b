// Package migrations holds the Postgres schema of the store, in steps that goose applies. A step is
// never changed once released; the next one follows.
package migrations

import "embed"

// Files of the steps.
//
//go:embed *.sql
var Files embed.FS

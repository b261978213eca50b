// Package migrations holds the Postgres schema of the store, in steps that goose applies. A step is
// never changed once released; the next one follows. Numbers jump, because steps that were worked
// on at the same time took theirs ahead and not all were needed; a number is never used twice.
package migrations

import "embed"

// Files of the steps.
//
//go:embed *.sql
var Files embed.FS

// Package scenes holds the scenes that SDKs are to pass; test/sdk/README.md says how they are
// written.
package scenes

import "embed"

// Files are NAME.scene each.
//
//go:embed *.scene
var Files embed.FS

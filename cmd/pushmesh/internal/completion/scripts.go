package completion

import _ "embed"

//go:embed pushmesh.bash
var bash string

//go:embed pushmesh.zsh
var zsh string

//go:embed pushmesh.fish
var fish string

// Shells are those that there is a script for.
const Shells = "bash,zsh,fish"

// Script has a shell ask the program, by its hidden command complete-words.
func Script(shell string) string {
	return map[string]string{"bash": bash, "zsh": zsh, "fish": fish}[shell]
}

# bash completion for pushmesh: source <(pushmesh completion bash)
_pushmesh() {
	local word help current=${COMP_WORDS[COMP_CWORD]}
	[[ $current == = ]] && current=
	COMPREPLY=()
	while IFS=$'\t' read -r word help; do
		case $word in
		:files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
		:folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
		*) COMPREPLY+=("$word") ;;
		esac
	done < <("${COMP_WORDS[0]}" complete-words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _pushmesh pushmesh

#compdef pushmesh
# zsh completion for pushmesh: source <(pushmesh completion zsh), or this file as _pushmesh in a folder of fpath
_pushmesh() {
	local word help
	local -a found
	while IFS=$'\t' read -r word help; do
		case $word in
		:files) compset -P '*='; _files ;;
		:folders) compset -P '*='; _files -/ ;;
		*) found+=("${word//:/\\:}:$help") ;;
		esac
	done < <("${words[1]}" complete-words -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	if ((${#found})); then
		compset -P '--*='
		_describe -V pushmesh found
	fi
}
if [[ ${funcstack[1]-} == _pushmesh ]]; then
	_pushmesh "$@"
else
	compdef _pushmesh pushmesh
fi

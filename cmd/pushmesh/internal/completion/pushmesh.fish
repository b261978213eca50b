# fish completion for pushmesh: pushmesh completion fish | source
function __pushmesh_complete
	set -l words (commandline -opc) (commandline -ct)
	for line in ($words[1] complete-words -- $words[2..-1] 2>/dev/null)
		switch $line
			case ':files*'
				__fish_complete_path (commandline -ct)
			case ':folders*'
				__fish_complete_directories (commandline -ct) ''
			case '*'
				set -l parts (string split -m 1 \t -- $line)
				if string match -q -- '--*=*' (commandline -ct)
					set parts[1] (string replace -r '=.*' '=' -- (commandline -ct))$parts[1]
				end
				echo $parts[1]\t$parts[2]
		end
	end
end
complete -c pushmesh -f -a '(__pushmesh_complete)'

#!/bin/bash
# Completion for bash, zsh and fish: each lists every command that `belfry --help` lists, every option that a command's
# --help lists, and the names of the vGPUs that are there. A shell that is not installed is told, and left out.
# shellcheck disable=SC1091,SC2016,SC2154,SC2317
set -u
. "$(dirname "$0")/common.sh"
folder=${BELFRY_SOURCE_DIR:?}/contrib/completion
export BELFRY_SOFT="mem=512M,linger=1,name=completion$$" folder
mkdir "$work/bin"
ln -s "$belfry" "$work/bin/belfry"
export PATH="$work/bin:$PATH"

# The commands of a help text: indented by two, a word of letters.
commands_of() { "$belfry" "$@" --help | sed -n 's/^  \([a-z]\{2,\}\) .*/\1/p'; }
# The options of a help text: of its usage, and what lines begin with.
options_of() {
	"$belfry" "$@" --help | grep -e '^usage' -e '^      ' -e '^  -' |
		sed -n -e 's/^  \(-[-a-z]*\).*/\1/p' -e '/^usage\|^       /s/\[/\n[/gp' |
		sed -n -e 's/^\[*\(--*[a-z][-a-z]*\).*/\1/p' | sort -u
}

# bash: what is offered for the words of a command line, the last of which may be empty.
offers_bash() {
	bash --norc --noprofile -c '. "$folder/belfry"
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_belfry
		printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}
# zsh: the functions that zsh calls are replaced by ones that print what they are told.
offers_zsh() {
	zsh -f -c '
		setopt extendedglob
		_arguments() {
			local spec
			for spec in "$@"; do
				[[ $spec != (#b)(\([^\)]#\)|)(\*|)(-[-a-z]##)\[* ]] || print -r -- $match[3]
				[[ $spec != (\*|<->)*:_belfry_names ]] || _belfry_names
				[[ $spec != *:_belfry_program_words ]] || (CURRENT=1 _belfry_program_words)
			done
			# A command with commands of its own: is it the next word, or one after it?
			if [[ $1 == -C ]]; then
				if (( CURRENT == 2 )); then
					state=command
				else
					state=argument
					shift words
					(( CURRENT-- ))
					line=($words[1])
				fi
			fi
		}
		_describe() {
			local each
			for each in "${(@P)4}"; do print -r -- ${each%%:*}; done
		}
		compadd() { if [[ $1 == -a ]]; then print -rl -- "${(@P)2}"; else print -rl -- "$@"; fi; }
		_files() { }
		_normal() { }
		_command_names() { }
		_users() { }
		. "$folder/_belfry"
		words=("$@") CURRENT=$#
		_belfry' zsh "$@"
}
offers_fish() { fish --no-config -c 'source $folder/belfry.fish; complete -C (string join " " -- $argv)' -- "$@" | cut -f1; }

# offers SHELL WORD...: into $work/offers
offers() {
	local shell=$1
	shift
	"offers_$shell" "$@" >"$work/offers" 2>"$work/err" || true
	[ ! -s "$work/err" ] || fail "$shell: $*: $(cat "$work/err")"
}
# offered SHELL WANTED WORD...: after those words
offered() {
	local shell=$1 wanted=$2
	shift 2
	grep -qxF -- "$wanted" "$work/offers" || fail "$shell: '$wanted' is not offered after '$*': $(tr '\n' ' ' <"$work/offers")"
}

# check_options SHELL HELP WORD...: the options of `belfry HELP --help`, after those words
check_options() {
	local shell=$1 help=$2 option
	shift 2
	offers "$shell" belfry "$@" -
	[ "$shell" != fish ] || offers_fish belfry "$@" -- >>"$work/offers" # it offers long options by what was typed
	# shellcheck disable=SC2086 # words
	for option in $(options_of $help); do
		offered "$shell" "$option" "$@"
		checked=$((checked + 1))
	done
}

check_shell() {
	local shell=$1 command sub
	offers "$shell" belfry ''
	for command in $(commands_of); do
		offered "$shell" "$command" belfry
	done
	for command in $(commands_of); do
		case $command in
		policy | probe) ;; # below
		soft) check_options "$shell" soft soft status ;;
		*) check_options "$shell" "$command" "$command" ;;
		esac
	done
	for group in policy probe; do
		offers "$shell" belfry "$group" ''
		for sub in $(commands_of "$group"); do
			offered "$shell" "$sub" "$group"
		done
		for sub in $(commands_of "$group"); do
			check_options "$shell" "$group $sub" "$group" "$sub"
		done
	done
	for command in set explain stats hold open stop resume rm run verify 'events --vgpu' 'policy load --vgpu' 'probe attach --vgpu'; do
		# shellcheck disable=SC2086 # words
		offers "$shell" belfry $command ''
		case "$shell $command" in zsh*--vgpu) continue ;; esac # zsh reads that from the option itself
		offered "$shell" a-vgpu "$command"
		offered "$shell" other "$command"
		! grep -qx soft:0 "$work/offers" || fail "$shell: $command: a GPU is offered as a vGPU"
	done
}

# bash: further names for rm, names behind options, and options behind a name.
check_bash_positions() {
	offers bash belfry rm a-vgpu ''
	[ "$(cat "$work/offers")" = other ] || fail "bash: rm a-vgpu: $(tr '\n' ' ' <"$work/offers")"
	offers bash belfry rm a-vgpu --force o
	[ "$(cat "$work/offers")" = other ] || fail "bash: rm a-vgpu --force o: $(tr '\n' ' ' <"$work/offers")"
	offers bash belfry rm a-vgpu other ''
	offered bash --force rm a-vgpu other
	offers bash belfry rm a-vgpu --
	offered bash --force rm a-vgpu
	for words in 'hold --for 1s' 'set --mem 1G --time 10' 'stop -v' 'explain --json'; do
		# shellcheck disable=SC2086 # words
		offers bash belfry $words ''
		offered bash other "$words"
	done
	for words in 'hold other:--for' 'set other:--mem' 'create new:--gpu' 'stop other:-v' 'stats other:--json'; do
		# shellcheck disable=SC2086 # words
		offers bash belfry ${words%:*} ''
		offered bash "${words#*:}" "${words%:*}"
		! grep -qx a-vgpu "$work/offers" || fail "bash: ${words%:*}: a second name is offered"
	done
	offers bash belfry help st
	[ "$(sort "$work/offers" | tr '\n' ' ')" = 'stats stop ' ] || fail "bash: help st: $(tr '\n' ' ' <"$work/offers")"
}

[ "$(commands_of | wc -l)" -ge 17 ] || fail "the commands are not found: $(commands_of)"
[ "$(options_of create | grep -c -e '^--mem$' -e '^--owner$' -e '^--json$')" = 3 ] || fail "the options are not found: $(options_of create)"
[ "$(options_of top | LC_ALL=C sort | tr '\n' ' ')" = '--help -d -n ' ] || fail "the options of top are not found: $(options_of top)"
status 0 "$belfry" create a-vgpu
status 0 "$belfry" create other
skipped=''
for shell in bash zsh fish; do
	checked=0
	if command -v "$shell" >/dev/null; then
		check_shell "$shell"
		echo "$shell: $checked options"
		[ "$checked" -ge 80 ] || fail "$shell: only $checked options were looked for"
	else
		skipped="$skipped $shell"
	fi
done
check_bash_positions
[ -z "$skipped" ] || echo "not installed, and not tried:$skipped"
exit "$failed"

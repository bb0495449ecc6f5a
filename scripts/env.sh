# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by the other scripts: the cache folder, and functions that show progress.

# A failing command in $(...) also ends the script.
shopt -s inherit_errexit

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# All results of slow steps are here, outside of the checkout.
CACHE=${IB_SDP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ib_sdp}
export TOP CACHE
# The supported release series of the kernel, the newest first.
# shellcheck disable=SC2034 # for the scripts that source this file
mapfile -t SERIES < <(grep -v '^#' "$TOP/scripts/series")
mkdir -p "$CACHE/log"

# die TEXT...: prints an error message and exits.
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# content_key [FILE...]: a short key of the standard input and the content of the files.
content_key() {
	{ cat; [ $# -eq 0 ] || cat -- "$@"; } | sha256sum | cut -c1-12
}

# step TITLE LOG COMMAND...: runs the command with its output in LOG, shows progress, and on failure
# the end of the log and its path.
step() {
	local title=$1 log=$2 start=$SECONDS pid rc=0
	shift 2
	: >"$log"
	# A process group of its own, which Ctrl-C ends as a whole.
	set -m
	"$@" >>"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	trap 'kill -TERM -- "-$pid"; sleep 0.2; kill -KILL -- "-$pid"; exit 130' INT TERM HUP
	if [ -t 2 ]; then
		while kill -0 "$pid" 2>/dev/null; do
			printf '\r\033[K  .. %s  %ds' "$title" $((SECONDS - start)) >&2
			sleep 0.5
		done
		printf '\r\033[K' >&2
	else
		printf '  .. %s\n' "$title" >&2
	fi
	wait "$pid" || rc=$?
	trap - INT TERM HUP
	if [ "$rc" -ne 0 ]; then
		printf '  FAILED %s (exit %d, after %ds)\n' "$title" "$rc" $((SECONDS - start)) >&2
		tail -n 20 "$log" | sed 's/^/    | /' >&2
		printf '  the whole log: %s\n' "$log" >&2
		return "$rc"
	fi
	printf '  ok %s  %ds\n' "$title" $((SECONDS - start)) >&2
}

# with_lock NAME COMMAND...: runs one command at a time, so that two runs can share one cache.
with_lock() {
	local name=$1
	shift
	(
		exec 9>"$CACHE/$name.lock"
		flock 9
		"$@" 9>&-
	)
}

# in_machines KERNELS MODULE ARGUMENT...: builds the images of the machines and executes this Python
# module of scripts/, which runs them (in the sandbox). A kernel is stock (the chosen release, see
# scripts/kernel), debug, or stock-SERIES.
in_machines() {
	local kernels=$1 module=$2 kernel made images=
	shift 2
	for kernel in $kernels; do
		case $kernel in
		stock-*) made=$(IB_SDP_KERNEL=${kernel#stock-} "$TOP/scripts/initramfs" stock) ;;
		*) made=$("$TOP/scripts/initramfs" "$kernel") ;;
		esac
		images+="$kernel ${made%%$'\n'*} ${made##*$'\n'}"$'\n'
	done
	exec "$TOP/scripts/sandbox" env PYTHONPATH="$TOP/scripts" PYTHONDONTWRITEBYTECODE=1 \
		IB_SDP_TOP="$TOP" IB_SDP_IMAGES="$images" IB_SDP_LANES="${IB_SDP_LANES-}" \
		python3 -m "$module" "$@"
}

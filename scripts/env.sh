# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Sourced by the other scripts: the cache folder, and functions that show progress.

# A first argument --help prints the comment at the top of the script.
if [ "${1-}" = --help ]; then
	sed -n '3,${/^#/!q;s/^# \{0,1\}//p}' "$0"
	exit
fi

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

# The release of Debian whose packages the roots in the cache are made of.
# shellcheck disable=SC2034 # for the scripts that source this file
SUITE=trixie

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

# need_mmdebstrap: installs mmdebstrap where apt can do that.
need_mmdebstrap() {
	if command -v mmdebstrap >/dev/null; then
		return
	fi
	if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
		step "Installing mmdebstrap (apt-get install mmdebstrap)" "$CACHE/log/mmdebstrap.log" \
			sh -c 'apt-get update && apt-get install -y mmdebstrap'
	else
		die "mmdebstrap is needed: install the package of that name (and uidmap for an ordinary user)"
	fi
}

# archive_line: the host's archive for mmdebstrap, as a line of sources.list; nothing if mmdebstrap's default serves.
archive_line() {
	local from keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=
	from=$("$TOP/scripts/sandbox" --mirror) || return 1
	[ ! -e "$keyring" ] || signed="[signed-by=$keyring] "
	[ -z "$from" ] || echo "deb ${signed}$from $SUITE main"
}

# in_root COMMAND...: runs it with the rights over the files of a root in the cache (an ordinary user's
# belong to mapped ids) and with mounts of its own.
in_root() {
	if [ "$(id -u)" -eq 0 ]; then
		unshare --mount "$@"
	else
		unshare --mount --map-root-user --map-auto "$@"
	fi
}

# discard ROOT: removes a root as it was made.
discard() {
	[ -e "$1" ] || return 0
	in_root rm -rf --one-file-system "$1"
}

# machine_images KERNELS: builds the images of the machines; prints a line for each kernel: its name, the
# image, the initramfs. A kernel is stock (the chosen release, see scripts/kernel), debug, or stock-SERIES.
machine_images() {
	local kernel made
	for kernel in $1; do
		case $kernel in
		stock-*) made=$(IB_SDP_KERNEL=${kernel#stock-} "$TOP/scripts/initramfs" stock) ;;
		*) made=$("$TOP/scripts/initramfs" "$kernel") ;;
		esac
		echo "$kernel ${made%%$'\n'*} ${made##*$'\n'}"
	done
}

# with_images IMAGES MODULE ARGUMENT...: becomes that Python module of scripts/, which runs machines (in the sandbox).
# IB_SDP_PROGRAMS, if it is set, is a disk for the machines (see scripts/programs).
with_images() {
	local images=$1 module=$2
	shift 2
	exec "$TOP/scripts/sandbox" env PYTHONPATH="$TOP/scripts" PYTHONDONTWRITEBYTECODE=1 \
		IB_SDP_TOP="$TOP" IB_SDP_IMAGES="$images" IB_SDP_LANES="${IB_SDP_LANES-}" \
		IB_SDP_PROGRAMS="${IB_SDP_PROGRAMS-}" python3 -m "$module" "$@"
}

# in_machines KERNELS MODULE ARGUMENT...: both.
in_machines() {
	local images
	images=$(machine_images "$1")
	with_images "$images" "${@:2}"
}

#!/bin/sh
# Installs maestro from an archive of its release. Read this file, then run it:
#
#   sh install.sh                into ~/.local, or into /usr/local as root
#   sh install.sh --prefix DIR   into DIR
#   sh install.sh --from DIR     the archive and checksums.txt are in DIR; downloads nothing
#   sh install.sh --uninstall    removes what it installed, also with --prefix
#
# Without --from it downloads the archive and checksums.txt of its own version, over HTTPS. It
# installs nothing if the archive does not have the checksum that checksums.txt lists.
set -eu

version=@VERSION@
releases=https://github.com/seed-028515a8/maestro/releases/download

say() { printf '%s\n' "$*"; }
fail() {
	say "install.sh: $*" >&2
	exit 1
}
usage() {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit "$1"
}

from= uninstall=
prefix=${HOME:-}/.local
[ "$(id -u)" -ne 0 ] || prefix=/usr/local
while [ $# -gt 0 ]; do
	case $1 in
	--prefix | --from)
		[ -n "${2:-}" ] || fail "$1 needs a directory"
		[ "$1" = --from ] && from=$2 || prefix=$2
		shift
		;;
	--uninstall) uninstall=yes ;;
	-h | --help) usage 0 ;;
	*) usage 2 >&2 ;;
	esac
	shift
done
case $prefix in
/.local) fail "HOME is not set: use --prefix" ;;
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
share=$prefix/share
[ ! -d "$prefix/bin/maestro" ] || fail "$prefix/bin/maestro is a directory"

if [ -n "$uninstall" ]; then
	[ -e "$prefix/bin/maestro" ] || fail "$prefix/bin/maestro does not exist"
	rm -rf "$share/doc/maestro"
	rm -f "$prefix/bin/maestro" "$share/man/man1/maestro.1" "$share/man/man1"/maestro-*.1 \
		"$share/bash-completion/completions/maestro" "$share/zsh/site-functions/_maestro" \
		"$share/fish/vendor_completions.d/maestro.fish"
	say "removed maestro from $prefix; sessions and tokens stay where they are"
	exit
fi

case $version in
@*) fail "this is a template without a version: make snapshot writes bin/dist/install.sh" ;;
esac
case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) fail "no archive for $(uname -s): see docs/install.md for other ways" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "no archive for the processor $(uname -m)" ;;
esac
name=maestro_${version}_${os}_$arch

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

for file in "$name.tar.gz" checksums.txt; do
	if [ -n "$from" ]; then
		cp "$from/$file" "$work/" || fail "$from has no $file"
	elif command -v curl >/dev/null; then
		curl --fail --silent --show-error --location --proto '=https' --output "$work/$file" "$releases/v$version/$file" || fail "cannot download $releases/v$version/$file"
	elif command -v wget >/dev/null; then
		wget --quiet --output-document="$work/$file" "$releases/v$version/$file" || fail "cannot download $releases/v$version/$file"
	else
		fail "neither curl nor wget is installed: download $releases/v$version/$file yourself and use --from"
	fi
done

want=$(awk -v file="$name.tar.gz" '$2 == file { print $1 }' "$work/checksums.txt")
[ -n "$want" ] || fail "checksums.txt does not list $name.tar.gz"
if command -v sha256sum >/dev/null; then
	got=$(sha256sum <"$work/$name.tar.gz")
else
	got=$(shasum -a 256 <"$work/$name.tar.gz")
fi
[ "${got%% *}" = "$want" ] || fail "$name.tar.gz has the checksum ${got%% *}, checksums.txt says $want; nothing was installed"

tar -xzf "$work/$name.tar.gz" -C "$work"
cd "$work/$name"
# put MODE FILE DESTINATION replaces the file in one step, so that a running program is not changed.
put() {
	mkdir -p "${3%/*}"
	cp "$2" "$3.new"
	chmod "$1" "$3.new"
	mv -f "$3.new" "$3"
}
put 755 maestro "$prefix/bin/maestro"
for page in man/*.1; do put 644 "$page" "$share/man/man1/${page#man/}"; done
put 644 completions/maestro.bash "$share/bash-completion/completions/maestro"
put 644 completions/_maestro "$share/zsh/site-functions/_maestro"
put 644 completions/maestro.fish "$share/fish/vendor_completions.d/maestro.fish"
for file in README.md LICENSE THIRD_PARTY_LICENSES; do put 644 "$file" "$share/doc/maestro/$file"; done

say "installed maestro $version in $prefix/bin"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) say "$prefix/bin is not in PATH: add it in the profile of your shell" ;;
esac

#!/bin/sh
# install.sh WHAT: installs, as root, what WHAT needs from Debian; starts no service. Reads a package a line, each with the
# programs that it is there for. Nothing to do if all of them are there.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=
while read -r package programs; do
  for program in $programs; do
    command -v "$program" >/dev/null || { missing="$missing $package"; break; }
  done
done
[ "$(id -u)" = 0 ] || { echo "$1 need root${missing:+, also to install$missing}" >&2; exit 1; }
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || { echo "no apt-get here: install$missing by this system's own means" >&2; exit 1; }
echo "installing$missing"

# Packages ask this program whether they may start their service; exit code 101 forbids it.
policy=/usr/sbin/policy-rc.d
restore() {
  rm -f "$policy"
  [ ! -e "$policy.before-dlperf" ] || mv "$policy.before-dlperf" "$policy"
}
trap restore EXIT
trap 'exit 1' HUP INT TERM
[ ! -e "$policy" ] || mv "$policy" "$policy.before-dlperf"
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet --quiet
# shellcheck disable=SC2086  # a list of words
apt-get install --quiet --quiet --yes --no-install-recommends -o DPkg::Lock::Timeout=300 $missing

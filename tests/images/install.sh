#!/bin/sh
# Installs what the tests of images need from Debian, as root; starts no service. Nothing to do if all is there.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=
need() {  # need PACKAGE PROGRAM...
  package=$1
  shift
  for program; do
    command -v "$program" >/dev/null || { missing="$missing $package"; return; }
  done
}
need docker.io dockerd
need iptables iptables
need debootstrap debootstrap
[ "$(id -u)" = 0 ] || { echo "the tests of images need root${missing:+, also to install$missing}" >&2; exit 1; }
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

#!/bin/sh
exec "$(dirname "$0")/../install.sh" "the tests of images" <<'END'
docker.io dockerd
iptables iptables
debootstrap debootstrap
END

#!/bin/sh
exec "$(dirname "$0")/../install.sh" "the tests on Arm" <<'END'
qemu-user-static qemu-aarch64-static
debootstrap debootstrap
dpkg dpkg-deb
END

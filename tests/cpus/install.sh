#!/bin/sh
# The emulator; root is needed only where it is missing.
command -v qemu-x86_64-static >/dev/null || exec "$(dirname "$0")/../install.sh" "the tests of CPUs" <<'END'
qemu-user-static qemu-x86_64-static
END

"""Signatures of archives, by ssh-keygen: with a key that its owner has for ssh, beside the file as FILE.sig."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dlperf.errors import RunError

NAMESPACE = "dlperf"


def beside(file: Path) -> Path:
    return file.with_name(file.name + ".sig")


def sign(file: Path, key: Path) -> Path:
    """Write FILE.sig; an agent's key is named by its public half. RunError where ssh-keygen cannot."""
    made = _ssh_keygen(file, "sign", "-f", str(key))
    if made.returncode:
        raise RunError("sign", f"{file} could not be signed with {key}.", _said(made))
    aside = beside(file).with_name(f".{beside(file).name}.writing")
    aside.write_bytes(made.stdout)
    return aside.replace(beside(file))


def problem(file: Path, signers: Path, identity: str) -> str:
    """Why FILE.sig is no signature of the file by one of the allowed signers; empty if it is."""
    if not beside(file).is_file():
        return f"There is no signature: {beside(file)} is missing."
    found = _ssh_keygen(file, "verify", "-f", str(signers), "-I", identity, "-s", str(beside(file)))
    why = " ".join(" ".join(_said(found)).split())
    return f"{beside(file)} is no signature of it by {identity}: {why.rstrip('.')}." if found.returncode else ""


def _ssh_keygen(file: Path, what: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Of the file as standard input: what is signed goes to standard output, and nothing is asked."""
    command = ["ssh-keygen", "-Y", what, "-n", NAMESPACE, *words]
    with open(file, "rb") as content:
        try:
            return subprocess.run(command, stdin=content, capture_output=True)
        except OSError:
            says = (
                "ssh-keygen was not found, which makes and checks signatures. Install OpenSSH's client, 8.2 or newer."
            )
            raise RunError("ssh-keygen", says) from None


def _said(ended: subprocess.CompletedProcess[bytes]) -> list[str]:
    return (ended.stderr + ended.stdout).decode("utf-8", "replace").strip().splitlines()[-5:]

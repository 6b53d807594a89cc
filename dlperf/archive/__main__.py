"""Packs a comparison into one file that anybody can check, checks such a file, and signs it."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlperf.cli import Parser, exit_code
from dlperf.errors import Problem, UsageError

EXIT_CODES = (
    "Exit codes: 0; 1 where an archive does not verify, or cannot be made or signed; 2 for an invalid request; 3 where "
    "nothing is wrong with one, but a part could not be compared."
)
#: what `verify` says of an archive, by its exit code
VERDICTS = {0: "verified", 1: "NOT VERIFIED", 3: "verified in part"}


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.archive", description=__doc__, epilog=EXIT_CODES)
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    pack = commands.add_parser("pack", help="make NAME.dlperf.tar.gz of a comparison's folder")
    pack.add_argument("source", metavar="RUN", help="a comparison's folder")
    pack.add_argument("-o", "--output", metavar="FILE", help="a new file; default: RUN's name, in this folder")
    verify = commands.add_parser("verify", help="check files, rates and report of an archive; needs no network")
    verify.add_argument("files", metavar="FILE", nargs="+")
    verify.add_argument("--allowed-signers", metavar="FILE", help="who may sign, as ssh-keygen(1) has it; FILE.sig too")
    verify.add_argument("--identity", metavar="NAME", help="who of them did")
    sign = commands.add_parser("sign", help="make FILE.sig with ssh-keygen")
    sign.add_argument("file", metavar="FILE")
    sign.add_argument(
        "-k", "--key", metavar="KEY", required=True, help="a private key for ssh, or an agent's public one"
    )
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """See EXIT_CODES."""
    arguments = vars(parser().parse_args(argv))
    commands = {"pack": _pack, "verify": _verify, "sign": _sign}
    return exit_code(lambda: commands[arguments["command"]](arguments))


def _pack(arguments: Mapping[str, Any]) -> int:
    from dlperf.archive import pack
    from dlperf.report import gate

    folder = Path(arguments["source"])
    file = Path(arguments["output"] or f"{folder.resolve().name}{pack.SUFFIX}")
    if file.exists():
        raise UsageError([Problem("--output", file, says="this is there already. Remove it, or choose another file.")])
    comparison, warnings = pack.opened(folder)
    for warning in warnings:
        print(f"{folder}: {warning}", file=sys.stderr)
    comparison = replace(comparison, unmet=gate.told(["records"] if warnings else []))
    pack.write(comparison, folder, file)
    print(f"Archive: {file} ({file.stat().st_size:,} bytes)")
    return 0


def _verify(arguments: Mapping[str, Any]) -> int:
    """The worst of all: one that does not verify, or else one that does so in part."""
    files = [_file(name, "FILE") for name in arguments["files"]]
    signers, identity = arguments["allowed_signers"], arguments["identity"]
    if bool(signers) != bool(identity):
        lacking = "--identity" if signers else "--allowed-signers"
        raise UsageError([Problem(lacking, "", says="a signature is checked with both flags. Name both, or none.")])
    codes = {_verified(file, signers and _file(signers, "--allowed-signers"), identity) for file in files}
    return next(code for code in (1, 3, 0) if code in codes)


def _verified(file: Path, signers: Path | None, identity: str) -> int:
    from dlperf.archive import signature
    from dlperf.archive.check import check

    found = check(file)
    problems, notes = list(found.problems), [*found.uncompared, *found.notes]
    if signers:
        problems += filter(None, [signature.problem(file, signers, identity)])
    elif signature.beside(file).exists():
        notes.append(f"{signature.beside(file)} was not looked at: name --allowed-signers and --identity.")
    for line in (*problems, *notes):
        print(line)
    code = 1 if problems else 3 if found.uncompared else 0
    print(f"{file}: {VERDICTS[code]}{f', signed by {identity}' if signers and not problems else ''}")
    return code


def _sign(arguments: Mapping[str, Any]) -> int:
    from dlperf.archive import signature

    file, key = _file(arguments["file"], "FILE"), _file(arguments["key"], "--key")
    made = signature.beside(file)
    if os.path.lexists(made):
        says = "it has a signature already. Remove that first, or keep it elsewhere."
        raise UsageError([Problem("FILE", made, says=says)])
    print(f"Signature: {signature.sign(file, key)}")
    return 0


def _file(name: str, field: str) -> Path:
    if not Path(name).is_file():
        raise UsageError([Problem(field, name, says="there is no such file.")])
    return Path(name)


if __name__ == "__main__":
    sys.exit(main())

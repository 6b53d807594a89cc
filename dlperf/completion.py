"""Print a script that has a shell complete dlperf's commands, options and values: source <(dlperf completion bash)."""

from __future__ import annotations

import dlperf.needs  # noqa: F401

# isort: split

import argparse
import importlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlperf import models, sources
from dlperf.catalog import reader
from dlperf.catalog.adapter import DEVICES
from dlperf.cli import COMMANDS, PACKAGES, Parser, exit_code
from dlperf.flags import FLAGS
from dlperf.launchers import names as launchers
from dlperf.launchers.containers import ENGINES
from dlperf.models import FORMATS
from dlperf.planning.spec import AUTO, PROTOCOLS
from dlperf.planning.tuned import CHOICES as TUNED
from dlperf.precision import ASKED

#: what stands for a file or a folder in --help
FILES = frozenset(["DIR", "FILE", "PAGE", "RUN", "ROW"])
#: options whose values are a list with commas
LISTS = frozenset(name for flag in FLAGS if flag.takes == "list" for name in flag.names.split()) | {
    "--published",
    "--against",
}


@dataclass(frozen=True)
class Option:
    """One option of a command. takes: whether a value follows; values: those that are known; files: whether it may name
    a file."""

    names: tuple[str, ...]
    about: str
    takes: bool
    values: tuple[str, ...]
    files: bool

    @property
    def listed(self) -> bool:
        return bool(LISTS & set(self.names))


@dataclass(frozen=True)
class Command:
    """Its options, and the words that it takes besides; files: whether these may be files."""

    options: tuple[Option, ...]
    words: tuple[str, ...]
    files: bool


def parser() -> argparse.ArgumentParser:
    made = Parser(prog="python -m dlperf.completion", description=__doc__)
    made.add_argument("shell", choices=SHELLS, help="for which shell")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 for a wrong request."""
    asked = parser().parse_args(argv)
    return exit_code(lambda: print(SHELLS[asked.shell](commands()), end=""))


def commands() -> dict[str, Command]:
    """All, by name, read from their parsers; the values of options that a parser takes as text from where they are."""
    adapters = reader.adapters()
    known: dict[str, tuple[str, ...]] = {
        "model": (*models.GROUPS, *models.ALIASES, *models.NAMES),
        "precision": (*ASKED, AUTO),
        "frameworks": tuple(adapters),
        "device": ("auto", *DEVICES),
        "env": ("venv", "current", *ENGINES),
        "launcher": ("auto", *launchers()),
        "protocol": tuple(PROTOCOLS),
        "compile": ("on", "off"),
        "tuned": TUNED,
        "input": ("native", "dali"),
        "format": FORMATS,
        "names": tuple(adapters),  # of envs and images
        "rows": tuple(adapters),  # of why
        "published": tuple(sources.names()),  # of report
        "against": tuple(sources.names()),
    }
    found = {}
    for name in COMMANDS:
        module = importlib.import_module(f"dlperf.{name}" + (".__main__" if name in PACKAGES else ""))
        more = {"precision": ("fp64", *ASKED)} if name == "verify" else {}
        made = module.parser(adapters) if name == "envs" else module.parser()
        found[name] = _command(made, {**known, **more})
    return found


def _command(made: argparse.ArgumentParser, known: Mapping[str, tuple[str, ...]]) -> Command:
    actions = list(_actions(made))
    positional = [action for action in actions if not action.option_strings]
    return Command(
        tuple(_option(action, known) for action in actions if action.option_strings),
        tuple(dict.fromkeys(value for action in positional for value in _values(action, known))),
        any(_is_file(action) for action in positional),
    )


def _actions(made: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of its subcommands, too, each once."""
    seen: set[tuple[str, ...]] = set()
    parsers = [made]
    for one in parsers:
        for action in one._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
            if not action.option_strings or tuple(action.option_strings) not in seen:
                seen.add(tuple(action.option_strings))
                yield action


def _option(action: argparse.Action, known: Mapping[str, tuple[str, ...]]) -> Option:
    about = " ".join((action.help or "").replace("%%", "%").split())
    takes = action.nargs != 0
    return Option(tuple(action.option_strings), about, takes, _values(action, known) if takes else (), _is_file(action))


def _values(action: argparse.Action, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(map(str, action.choices)) if action.choices is not None else known.get(action.dest, ())


def _is_file(action: argparse.Action) -> bool:
    return action.metavar in FILES


BASH = """\
# dlperf's completion for bash: source <(dlperf completion bash)
_dlperf() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= files= list= head=
  COMPREPLY=()
  case "$prev $cur" in
    *" =") cur= ;;
    "= "*) prev=${COMP_WORDS[COMP_CWORD-2]} ;;
    *" "--*=*) prev=${cur%%=*} head=${cur%%=*}= cur=${cur#*=} ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$cur"))
    return
  fi
  case "${COMP_WORDS[1]} $prev" in
@OPTIONS@
    *) case "${COMP_WORDS[1]}" in
@WORDS@
    esac ;;
  esac
  if [ -n "$list" ]; then
    case "$cur" in *,*) head=$head${cur%,*},; cur=${cur##*,} ;; esac
  fi
  COMPREPLY=($(compgen -P "$head" -W "$words" -- "$cur"))
  if [ -n "$files" ]; then
    compopt -o default 2>/dev/null || COMPREPLY+=($(compgen -P "$head" -f -- "$cur"))
  fi
}
complete -F _dlperf dlperf
"""


def bash(found: Mapping[str, Command]) -> str:
    options, words = [], []
    for name, command in found.items():
        for option in command.options:
            if option.takes:
                pattern = "|".join(f'"{name} {one}"' for one in option.names)
                options.append(f"    {pattern}) {_set(option.values, option.files, option.listed)} ;;")
        flags = [one for option in command.options for one in option.names]
        dashed, bare = _set(flags, False, False), _set(command.words, command.files, False)
        words.append(f'    {name}) case "$cur" in -*) {dashed} ;; *) {bare} ;; esac ;;')
    return _filled(BASH, {"COMMANDS": " ".join(found), "OPTIONS": "\n".join(options), "WORDS": "\n".join(words)})


def _set(values: Sequence[str], files: bool, listed: bool) -> str:
    """As variables of the function."""
    return f'words="{" ".join(values)}"' + (" files=1" if files else "") + (" list=1" if listed else "")


ZSH = """\
# dlperf's completion for zsh: source <(dlperf completion zsh)
(( $+functions[compdef] )) || { autoload -U compinit && compinit; }
autoload -U +X bashcompinit && bashcompinit
"""


def zsh(found: Mapping[str, Command]) -> str:
    """bash's, by zsh's own stand-in for its builtins."""
    return ZSH + bash(found).partition("\n")[2]


def fish(found: Mapping[str, Command]) -> str:
    lines = ["# dlperf's completion for fish: dlperf completion fish | source", "complete -c dlperf -f"]
    lines += [
        f"complete -c dlperf -n __fish_use_subcommand -a {name} -d {shlex.quote(COMMANDS[name])}" for name in found
    ]
    for name, command in found.items():
        of = f'complete -c dlperf -n "__fish_seen_subcommand_from {name}"'
        if command.words:
            lines.append(f"{of} -a {shlex.quote(' '.join(command.words))}")
        if command.files:
            lines.append(f"{of} -F")
        lines += [f"{of} {_fish_option(option)}" for option in command.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    names = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.names]
    words = [*names, *(["-d", shlex.quote(option.about)] if option.about else [])]
    if option.takes:
        words.append("-r -F" if option.files else "-x")
    if option.values and option.listed:
        words.append("-a " + shlex.quote(f"(__fish_append , {' '.join(option.values)})"))
    elif option.values:
        words.append("-a " + shlex.quote(" ".join(option.values)))
    return " ".join(words)


def _filled(template: str, parts: Mapping[str, str]) -> str:
    for name, text in parts.items():
        template = template.replace(f"@{name}@", text)
    return template


SHELLS: Mapping[str, Callable[[Mapping[str, Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


if __name__ == "__main__":
    sys.exit(main())

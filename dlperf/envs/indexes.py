"""Where packages come from: what the user configured for pip, for uv, which does not read that, and for pip itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

#: seconds that a configured package index has for an answer
PROBE_SECONDS = 3.0
#: what leads Python or pip to other folders than they are told
REDIRECT = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"}
REDIRECT |= {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_REQUIREMENT"}
#: uv's variables that say where packages and Pythons come from, and how it reaches them. Any other may make another
#: environment, or none: UV_SYSTEM_PYTHON, UV_CONSTRAINT, UV_EXCLUDE_NEWER, UV_LINK_MODE=symlink ...
HONOURED = re.compile(
    r"UV_(CACHE_DIR|NO_CACHE|CONFIG_FILE|NO_CONFIG|OFFLINE|(DEFAULT_|EXTRA_)?INDEX(_URL)?|INDEX_.+_(USERNAME|PASSWORD)"
    r"|FIND_LINKS|KEYRING_PROVIDER|CREDENTIALS_DIR|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|HTTP_.+|REQUEST_TIMEOUT"
    r"|ASTRAL_MIRROR_URL|PYTHON_(INSTALL_DIR|INSTALL_MIRROR|CACHE_DIR|DOWNLOADS|DOWNLOADS_JSON_URL)|CONCURRENT_.+)"
)
#: setting of pip -> the variables by which uv is told the same, the first of which is set if the user set none
AS_UV = {
    "index-url": ["UV_DEFAULT_INDEX", "UV_INDEX_URL"],
    "extra-index-url": ["UV_INDEX", "UV_EXTRA_INDEX_URL"],
    "find-links": ["UV_FIND_LINKS"],
    "trusted-host": ["UV_INSECURE_HOST"],
    "timeout": ["UV_HTTP_TIMEOUT", "UV_REQUEST_TIMEOUT"],
    "retries": ["UV_HTTP_RETRIES"],
}
#: and those that are not uv's alone, where pip's setting comes first, as in pip
AS_ANY = {
    "cert": ["SSL_CERT_FILE"],
    "client-cert": ["SSL_CLIENT_CERT"],
    "proxy": ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"],
}


def plain() -> dict[str, str]:
    """The user's variables without what would lead Python, pip or uv to other folders, or wrap the errors that we read
    to the terminal's width."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in REDIRECT and (not name.startswith("UV_") or HONOURED.fullmatch(name))
    }
    return {**kept, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "COLUMNS": "1000"}


@dataclass(frozen=True)
class Sources:
    """Where packages come from. settings: pip's, by its options' names, several values with spaces between them. cache:
    uv's, where its usual one cannot be written; else empty."""

    settings: Mapping[str, str]
    cache: str = ""

    def for_pip(self, extra: Sequence[str] = ()) -> dict[str, str]:
        """Its configuration restated: only so can an index be left out, for pip ignores a variable that is empty.

        extra: indexes to be asked too.
        """
        kept = {name: value for name, value in plain().items() if not name.startswith("PIP_")}
        indexes = {"extra-index-url": " ".join([*self.settings.get("extra-index-url", "").split(), *extra])}
        given = {"PIP_" + key.upper().replace("-", "_"): value for key, value in {**self.settings, **indexes}.items()}
        more = {"PIP_CONFIG_FILE": os.devnull, "PIP_USER": "0", "PIP_NO_INPUT": "1"}
        return {**kept, **{name: value for name, value in given.items() if value}, **more}

    def for_uv(self, extra: Sequence[str] = ()) -> dict[str, str]:
        """extra: indexes to be asked too."""
        # pip too trusts the system's certificates; and the settings of a project in the working folder are not ours
        environ = {"UV_SYSTEM_CERTS": "1", **plain(), "UV_PROJECT": "/"}
        environ.setdefault("UV_CACHE_DIR", self.cache)
        environ.setdefault("SSL_CERT_FILE", environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE") or "")
        for key, value in self.settings.items():
            names = AS_UV.get(key, [])
            if names and not any(environ.get(name) for name in names):
                environ[names[0]] = _in_uv(key, value)
            environ.update(dict.fromkeys(AS_ANY.get(key, []), value))
        if extra:
            environ["UV_INDEX"] = " ".join([*environ.get("UV_INDEX", "").split(), *extra])
        return {name: value for name, value in environ.items() if value}

    def uv_options(self) -> list[str]:
        """What no variable of uv says."""
        return ["--no-index"] if self.settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else []


def _in_uv(key: str, value: str) -> str:
    """uv wants whole seconds, and commas between links, which need not begin with ~."""
    if key == "timeout":
        return str(max(1, round(float(value)))) if re.fullmatch(r"[\d.]*\d", value) else ""
    if key != "find-links":
        return value
    return ",".join(link if "://" in link else os.path.abspath(os.path.expanduser(link)) for link in value.split())


#: for a shell: what pip is configured to do where a script runs, as `Sources.for_uv` hands it to uv; it names no host
IN_SHELL = """\
# where packages come from, as pip is configured here: uv does not read that
pip_told=$({python} -I -m pip config list 2>/dev/null)
from_pip() {{
  for section in global install :env:; do
    printf '%s\\n' "$pip_told" | sed -n "s/^$section\\.$1='\\(.*\\)'\\$/\\1/p"
  done | tail -n 1 | sed 's/\\\\n/ /g' | tr -s ' ' "$2"
}}
[ -n "$UV_DEFAULT_INDEX$UV_INDEX_URL" ] || UV_DEFAULT_INDEX=$(from_pip index-url ' ')
[ -n "$UV_INDEX$UV_EXTRA_INDEX_URL" ] || UV_INDEX=$(from_pip extra-index-url ' ')
[ -n "$UV_FIND_LINKS" ] || UV_FIND_LINKS=$(from_pip find-links ,)
[ -n "$UV_INSECURE_HOST" ] || UV_INSECURE_HOST=$(from_pip trusted-host ' ')
[ -n "$SSL_CERT_FILE" ] || SSL_CERT_FILE=$(from_pip cert ' ')
[ -n "$HTTPS_PROXY" ] || HTTPS_PROXY=$(from_pip proxy ' ')
UV_SYSTEM_CERTS=${{UV_SYSTEM_CERTS:-1}}
for name in UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_INSECURE_HOST SSL_CERT_FILE HTTPS_PROXY UV_SYSTEM_CERTS; do
  eval "[ -z \\"\\$$name\\" ] || export $name"
done"""


def read(say: Callable[[str], None], cache: str) -> Sources:
    """What pip is configured to do, without the extra indexes and folders of links that do not answer.

    pip and uv would wait and retry for each package, for some minutes at a black hole. Without a pip beside this
    interpreter nothing is known, and uv's own configuration stands alone. cache: for uv, if its own cannot be.
    """
    settings = _settings()
    sources = {key: settings[key].split() for key in ("extra-index-url", "find-links") if key in settings}
    dead = _dead([source for several in sources.values() for source in several])
    for source in sorted(dead):
        say(f"leaving out the package index {redacted(source)}: it does not answer")
    left = {key: " ".join(one for one in several if one not in dead) for key, several in sources.items()}
    usual = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Sources({**settings, **left}, "" if _writable(usual) else cache)


def _writable(folder: str) -> bool:
    """Whether it, or the nearest folder above that there is, can be written."""
    while not os.path.exists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK)


def _settings() -> dict[str, str]:
    """What `pip install` is configured to do: files, then its own sections, then variables."""
    import ast

    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    asked = subprocess.run(command, env=plain(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for line in asked.stdout.splitlines():
            key, equals, value = line.partition("=")
            if equals and key.startswith(section + "."):
                with suppress(ValueError, SyntaxError):
                    name = key.removeprefix(section + ".")
                    settings[name.removeprefix("default-")] = " ".join(str(ast.literal_eval(value)).split())
    return settings


def _dead(sources: Sequence[str]) -> set[str]:
    """Those that do not answer. All are asked at once; a thread that never gets an answer is left behind."""
    alive: set[str] = set()

    def ask(source: str) -> None:
        if _answers(source):
            alive.add(source)

    threads = [threading.Thread(target=ask, args=(source,), daemon=True) for source in sources]
    deadline = time.monotonic() + PROBE_SECONDS
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return set(sources) - alive


def _answers(source: str) -> bool:
    """Whether a folder exists or a server says anything: 404 and 401 are answers too."""
    import http.client
    import ssl
    import urllib.error
    import urllib.parse
    import urllib.request

    parts = urllib.parse.urlsplit(source)
    if parts.scheme not in ("http", "https"):
        folder = urllib.parse.unquote(parts.path) if parts.scheme == "file" else source
        return os.path.exists(os.path.expanduser(folder))
    unverified = ssl.create_default_context()  # pip may know certificates that we do not, and nothing is read here
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(redacted(source), method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=PROBE_SECONDS, context=unverified).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return True


def redacted(source: str) -> str:
    """Without the user and password that a URL may hold."""
    return re.sub(r"^(\w+://)[^/@]*@", r"\1", source)


def reason(lines: Sequence[str]) -> str:
    """The first error that pip or uv printed, and the last, which is the cause."""
    said = [
        found[1]
        for line in lines
        if (found := re.match(r"\s*(?:error:|Error:|ERROR:|cause:|Caused by:|×|╰─▶) (.*)", line))
    ]
    said = said or [line for line in lines if line.strip()][-1:] or ["it printed nothing"]
    return ": ".join(dict.fromkeys([said[0], said[-1]]))


def unreachable(lines: Iterable[str]) -> bool:
    """Whether pip or uv had trouble with the network."""
    signs = ["NewConnectionError", "ConnectTimeout", "ReadTimeout", "NameResolutionError", "ProxyError"]
    signs += ["Max retries exceeded", "Retrying (", "confirming the ssl certificate"]
    signs += ["error sending request", "Request failed after", "Network connectivity is disabled"]
    return any(sign in line for line in lines for sign in signs)


def blamed(lines: Iterable[str]) -> str:
    """ "; UV_CACHE_DIR is /nowhere" for the user's variables whose values an error of uv's names; else nothing."""
    text = "\n".join(lines)
    found = []
    for name, value in sorted(os.environ.items()):
        places = [redacted(part).removeprefix("file://").rstrip("/") for part in re.split(r"[\s,]+", value)]
        named = any(len(place) > 3 and place in text for place in places) or name == "UV_OFFLINE"
        if HONOURED.fullmatch(name) and named:
            found.append(f"{name} is {' '.join(map(redacted, value.split()))}")
    return "".join(f"; {one}" for one in found)

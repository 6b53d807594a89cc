"""Environments: whole or not there, shared, and a sentence for whatever goes wrong. Nothing here needs a network."""

import base64
import contextlib
import errno
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from processes import wait_for

import dlperf.adapters
from dlperf.catalog import locks, reader
from dlperf.envs import __main__ as command
from dlperf.envs import changes, guard, indexes, kinds, making, packed, pythons, wheels
from dlperf.envs import venv as venv_
from dlperf.envs.environment import Environment
from dlperf.envs.indexes import Sources
from dlperf.errors import RunError

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
REFUSED = "http://127.0.0.1:9/simple"


def wheel(folder, name, version="1.0", file="", text=""):
    """A package with one module, as a wheel; returns its line in a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(file or f"{name}.py", text or f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(
            f"{info}/RECORD", f"{file or name + '.py'},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def index(root, *names):
    """A package index in a folder: its URL and the lines of a lock."""
    lines = []
    root.mkdir(parents=True, exist_ok=True)
    for name in names:
        lines.append(wheel(root / name, name))
        (root / name / "index.html").write_text(
            f'<a href="{name}-1.0-py3-none-any.whl">{name}-1.0-py3-none-any.whl</a>'
        )
    return root.as_uri(), lines


def toy(root, lock, name="toy", python=(MINOR,), distribution="tiny", more=""):
    """An adapter whose environment has the lines of `lock`."""
    folder = root / "adapters" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requirements.cpu.txt").write_text("# a comment\n" + "\n".join(lock) + "\n")
    (folder / "adapter.toml").write_text(
        f'title = "Toy"\ndistribution = "{distribution}"\ndefault = false\n'
        f"[environment.cpu]\npython = {list(python)}\n{more}\n"
    )
    return reader.read(folder)


#: a build backend without dependencies, which packs tiny.py with what the variable FLAVOUR says
BACKEND = """\
import os, pathlib, zipfile

info, name = "tiny-1.0.dist-info", "tiny-1.0-py3-none-any.whl"
metadata = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n"

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    pathlib.Path(folder, info).mkdir()
    pathlib.Path(folder, info, "METADATA").write_text(metadata)
    return info

def build_wheel(folder, config_settings=None, metadata_directory=None):
    source, flavour = pathlib.Path("tiny.py").read_text(), os.environ.get("FLAVOUR")
    if flavour == "bitter":
        raise SystemExit("tiny.cc:7: fatal error: sugar.h: No such file or directory")
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as archive:
        archive.writestr("tiny.py", source + f"flavour = {flavour!r}\\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return name
"""


def sdist(root):
    """Adds the source distribution of tiny 1.0 to a package index; returns its line in a lock."""
    path = root / "tiny" / "tiny-1.0.tar.gz"
    path.parent.mkdir()
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND,
        "tiny.py": "standard = 14\n",
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"tiny-1.0/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    (path.parent / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
    return f"tiny==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def built(root, lock, source, flavour="sweet", file="tiny.py", old="standard = 14", new="standard = 20"):
    """An adapter whose environment has the lines of `lock`, and tiny built from source."""
    made = toy(root, lock)
    (made.folder / "requirements.cpu-built.txt").write_text("\n".join(lock) + "\n")
    (made.folder / "requirements.cpu-built.source.txt").write_text(f"# a comment\n{source}\n")
    with (made.folder / "adapter.toml").open("a") as file_:
        file_.write(
            f'[environment.cpu-built]\npython = ["{MINOR}"]\n[environment.cpu-built.build]\n'
            f'variables = {{ FLAVOUR = "{flavour}", WHERE = "{{bin}}" }}\n'
            f'replace = [{{ file = "{file}", old = "{old}", new = "{new}" }}]\n'
        )
    return reader.read(made.folder)


SETTINGS = indexes._settings


@pytest.fixture
def asks_pip(own_cache, monkeypatch):
    """pip itself says how it is configured, which takes half a second; else these tests look at its variables."""
    monkeypatch.setattr(indexes, "_settings", SETTINGS)


def variables_of_pip():
    keys = ("index-url", "extra-index-url", "find-links", "retries")
    given = {key: os.environ.get("PIP_" + key.upper().replace("-", "_")) for key in keys}
    return {key: value for key, value in given.items() if value}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """An empty cache, and none of this machine's settings of pip and uv."""
    monkeypatch.setattr(indexes, "_settings", variables_of_pip)
    settings = ("PIP_", "UV_", "XDG_")
    for name in [name for name in os.environ if name.startswith(settings)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "home"))
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DLPERF_ADAPTERS", str(tmp_path / "adapters"))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setattr(indexes, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(pythons, "_no_network", [])
    return tmp_path / "cache"


#: starts `python -m dlperf.envs` as a process
COMMAND = [sys.executable, "-u", "-m", "dlperf.envs"]


@pytest.fixture(scope="module")
def seed_wheels(tmp_path_factory):
    """What uv puts where something is built from source: two empty packages, and a pip that is this interpreter's, by a
    .pth file, for it takes seconds to compile one again."""
    folder = tmp_path_factory.mktemp("seeds")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "pip").symlink_to(importlib.metadata.distribution("pip").locate_file("pip"))
    wheel(folder, "setuptools", "99.0")
    wheel(folder, "wheel", "99.0")
    wheel(folder, "pip", "99.0", file="pip.pth", text=f"{folder}/elsewhere\n")
    return folder


@pytest.fixture
def seeds(seed_wheels, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(seed_wheels))


@pytest.fixture
def silent_server():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def failure(adapter, device="cpu", **given):
    with pytest.raises(RunError) as caught:
        kinds.ensure(adapter, device, **given)
    assert caught.value.kind == "environment"
    return caught.value


def left(cache):
    """What is in the cache beside lock files."""
    return sorted(path.name for path in (cache / "envs").glob("*") if path.suffix != ".lock")


def processes_in(folder):
    """Ids of processes whose command names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if str(folder).encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


# --- made, used, removed ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("asks_pip")
def test_an_environment_is_built_aside_moved_into_place_and_removed(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, lock, more='variables = { WHERE = "{site_packages}/tiny" }')
    lines = []
    env = kinds.ensure(adapter, "cpu", progress=lines.append)

    ran = subprocess.run([env.python, "-c", "import tiny; print(tiny.__file__)"], capture_output=True, text=True)
    assert ran.stdout.strip() == env.variables["WHERE"] + ".py"
    assert left(own_cache) == [env.folder.name]
    assert lines[0] == f"toy cpu: making an environment with Python {env.python_version} (1 of 2)"
    assert lines[1] == "toy cpu: installing tiny 1.0 and 1 more (2 of 2)"
    assert lines[2].startswith("toy cpu: ready after ")

    again = []
    assert kinds.ensure(adapter, "cpu", progress=again.append) == env
    assert again == []
    assert kinds.planned(adapter, "cpu").folder == env.folder

    kinds.check(env)
    assert venv_.remove(adapter, "cpu") == [env.folder]
    assert left(own_cache) == []
    with pytest.raises(RunError, match="has vanished"):
        kinds.check(env)


def test_commands_are_what_ensure_runs(tmp_path, own_cache):
    adapter = toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])
    mkdir, venv, install, move = kinds.commands(adapter, "cpu")
    building, folder = move.split()[2:]
    assert move.split()[:2] == ["mv", "-T"]
    assert mkdir == f"mkdir -p {own_cache}/envs"
    uv, verb, *options = venv.split()
    assert Path(uv).name == "uv"
    assert [verb, *options] == ["venv", "--relocatable", "--python", MINOR, building]
    assert install.startswith(f"{uv} pip install --python {building}/bin/python --require-hashes --no-deps ")
    assert folder == str(kinds.planned(adapter, "cpu").folder)
    assert not own_cache.exists()


def test_a_changed_lock_is_another_environment_and_the_old_one_is_stale(tmp_path, monkeypatch, capsys):
    url, lock = index(tmp_path / "index", "tiny", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    old = kinds.ensure(toy(tmp_path, lock), "cpu")
    adapter = toy(tmp_path, lock[:1])
    assert command.main(["list", "toy"]) == 0
    header, current, stale = capsys.readouterr().out.splitlines()
    assert header.split() == ["adapter", "device", "state", "python", "size", "folder"]
    assert current.split() == ["toy", "cpu", "not", "made", "-", "-", "-"]
    assert stale.split()[:4] == ["toy", "cpu", "stale", old.python_version]
    assert kinds.planned(adapter, "cpu").folder != old.folder
    assert venv_.remove(adapter, "cpu") == [old.folder]


def test_an_environment_whose_python_is_gone_is_made_again(tmp_path, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, lock)
    env = kinds.ensure(adapter, "cpu")
    env.python.unlink()
    env.python.symlink_to("/nowhere/python")
    with pytest.raises(RunError, match="has vanished"):
        kinds.check(env)
    lines = []
    kinds.check(kinds.ensure(adapter, "cpu", progress=lines.append))
    assert any("ready after" in line for line in lines)


def test_a_file_that_was_changed_afterwards_makes_it_another_environment(tmp_path, monkeypatch, capsys):
    """Proofs of what was there hold no longer."""
    url, lock = index(tmp_path / "index", "tiny", "other")
    monkeypatch.setenv("UV_INDEX_URL", url)
    adapter = toy(tmp_path, lock)
    before = kinds.ensure(adapter, "cpu", "venv")
    assert before.changed == ()
    assert "changed" not in before.stored
    module = next(before.folder.glob("lib/python*/site-packages/tiny.py"))
    later = (before.folder / "dlperf-environment.json").stat().st_mtime_ns + 1
    digests = {before.digest}
    for text in ("version = '1.0'  # faster\n", "version = '1.0'  # fastest\n"):
        module.unlink()  # a link to uv's cache
        module.write_text(text)
        os.utime(module, ns=(later, later))
        after = kinds.ensure(adapter, "cpu", "venv")
        assert after.stored["changed"] == "tiny.py"
        digests.add(after.digest)
    assert len(digests) == 3


def test_the_command_holds_files_against_their_wheels(tmp_path, monkeypatch, capsys):
    found = changes_of(tmp_path)
    assert changes.unlike_wheels(found) == []
    site = next(found.glob("lib/python*/site-packages"))
    (site / "tiny.py").write_text("altered\n")
    (site / "gone.py").unlink()
    (site / "new.pth").write_text("import new\n")
    (site / "__pycache__").mkdir()
    (site / "__pycache__" / "tiny.pyc").write_text("compiled\n")
    wrong = changes.unlike_wheels(found)
    assert changes.named(wrong) == "gone.py, new.pth, tiny.py"
    assert changes.named([*wrong, "a", "b"]) == "gone.py, new.pth, tiny.py and 2 more"


def changes_of(root):
    """A folder with two wheels, which share a file."""
    site = root / "lib" / "python3.12" / "site-packages"
    files = {"tiny.py": "tiny\n", "gone.py": "gone\n", "shared/__init__.py": "second\n"}
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    for number, shared in enumerate(["first\n", "second\n"]):
        info = site / f"wheel{number}-1.0.dist-info"
        info.mkdir()
        listed = {**({} if number else files), "shared/__init__.py": shared}
        digests = {name: hashlib.sha256(text.encode()).digest() for name, text in listed.items()}
        encoded = {name: base64.urlsafe_b64encode(one).rstrip(b"=").decode() for name, one in digests.items()}
        rows = [f"{name},sha256={one},7" for name, one in encoded.items()]
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
    return root


def test_several_at_once_and_one_that_fails(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    good, bad = toy(tmp_path, lock), toy(tmp_path, ["tiny"], name="bad")
    more = toy(tmp_path, lock, name="more")
    made = kinds.ensure_all([(bad, "cpu"), (good, "cpu"), (more, "cpu"), (good, "cuda")])
    assert [type(one) for one in made] == [RunError, Environment, Environment, RunError]
    assert "toy has no environment cuda; it has: cpu" in str(made[3])
    assert left(own_cache) == sorted([made[1].folder.name, made[2].folder.name])


def test_current_is_the_running_interpreter_if_it_has_the_framework(tmp_path):
    env = kinds.ensure(toy(tmp_path, [], distribution="pytest"), "cpu", kind="current")
    assert (env.kind, env.python, env.folder) == ("current", Path(sys.executable), None)
    assert env.digest == kinds.ensure(toy(tmp_path, [], distribution="numpy"), "cpu", kind="current").digest
    kinds.check(env)
    error = failure(toy(tmp_path, [], distribution="no-such-thing"), kind="current")
    assert "no-such-thing is not installed in the running Python" in str(error)


def test_files_are_shared_with_uvs_cache_counted_once_and_survive_another_environments_end(tmp_path, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    lines = []
    for name in ("one", "two"):
        env = kinds.ensure(toy(tmp_path, lock, name), "cpu", progress=lines.append)
    assert all(line.endswith(" are links to uv's cache") for line in lines if "ready after" in line)
    (file,) = env.folder.glob("lib/python*/site-packages/tiny.py")
    assert file.stat().st_nlink > 2
    venv_.remove(reader.adapters()["one"], "cpu")
    shutil.rmtree(tmp_path / "home" / ".cache" / "uv")
    assert subprocess.run([env.python, "-c", "import tiny"]).returncode == 0


def test_a_size_is_that_on_disk_and_what_of_it_lies_outside_too(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    (inside / "a").write_bytes(b"." * 50_000)
    os.link(inside / "a", inside / "b")
    own = (inside / "a").stat().st_blocks * 512
    assert guard.size_of(inside) == (own, 0)
    outside.write_bytes(b"." * 20_000)
    os.link(outside, inside / "c")
    assert guard.size_of(inside) == (own + outside.stat().st_blocks * 512, outside.stat().st_blocks * 512)


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setattr(os, "access", lambda path, mode: not str(tmp_path).startswith(str(path)))
    kinds.check(kinds.ensure(toy(tmp_path, lock), "cpu"))
    assert (own_cache / "uv").is_dir()
    assert not (tmp_path / "home" / ".cache").exists()


# --- built from source ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("seeds")
def test_a_source_build_is_changed_and_built_after_the_lock_without_the_users_variables(
    tmp_path, own_cache, monkeypatch
):
    url, lock = index(tmp_path / "index", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("FLAVOUR", "bitter")
    adapter = built(tmp_path, lock, sdist(tmp_path / "index"))
    lines = []
    env = kinds.ensure(adapter, "cpu-built", progress=lines.append)
    asked = "import tiny, other; print(tiny.standard, tiny.flavour)"
    ran = subprocess.run([env.python, "-c", asked], capture_output=True, text=True)
    assert ran.stdout == "20 sweet\n"
    assert lines[1] == "toy cpu-built: installing other 1.0 (2 of 3)"
    assert lines[2] == "toy cpu-built: building tiny 1.0 from source, which takes some minutes (3 of 3)"
    assert left(own_cache) == [env.folder.name]
    assert env.folder.name.startswith("toy-cpu-built-")
    assert not (env.folder / "source").exists()
    assert kinds.ensure(adapter, "cpu-built", progress=lines.append) == env
    assert len(lines) == 4


def test_what_is_built_from_source_is_part_of_the_environment(tmp_path):
    _, lock = index(tmp_path / "index", "other")
    source = sdist(tmp_path / "index")
    changes = [{}, {"flavour": "sour"}, {"new": "standard = 17"}, {"source": source[:-64] + "0" * 64}]
    folders = {"cpu": set(), "cpu-built": set()}
    for change in changes:
        adapter = built(tmp_path, lock, **{"source": source, **change})
        for key, found in folders.items():
            found.add(kinds.planned(adapter, key).folder)
    assert {key: len(found) for key, found in folders.items()} == {"cpu": 1, "cpu-built": len(changes)}


def test_a_source_distribution_is_unpacked_under_its_name(tmp_path):
    source = "two-words==1.0 --hash=sha256:" + "0" * 64
    lines = kinds.commands(built(tmp_path, [wheel(tmp_path / "wheels", "tiny")], source), "cpu-built")
    assert any("/source/two_words-1.0.tar.gz" in line for line in lines if line.startswith("tar "))


@pytest.mark.slow
def test_the_commands_of_a_source_build_make_the_environment(tmp_path, monkeypatch, seed_wheels):
    url, lock = index(tmp_path / "index", "other")
    adapter = built(tmp_path, lock, sdist(tmp_path / "index"), new="it = 'a $HOME'")
    for name, value in (("INDEX_URL", url), ("FIND_LINKS", str(seed_wheels))):
        monkeypatch.setenv(f"PIP_{name}", value)
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}")
    script = "\n".join(["set -e", *kinds.commands(adapter, "cpu-built")])
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    python = kinds.planned(adapter, "cpu-built").python
    ran = subprocess.run([python, "-c", "import tiny; print(tiny.it, tiny.flavour)"], capture_output=True, text=True)
    assert ran.stdout == "a $HOME sweet\n"


@pytest.mark.slow
@pytest.mark.usefixtures("seeds")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"old": "standard = 11"}, "tiny.py has no 'standard = 11' to replace"),
        ({"file": "huge.py"}, "huge.py'"),
        ({"flavour": "bitter"}, "tiny.cc:7: fatal error: sugar.h: No such file or directory"),
        ({"source": "tiny==1.0 --hash=sha256:" + "0" * 64}, "requirements.cpu-built.source.txt, line 2: the hash of"),
        ({"source": "tiny"}, "requirements.cpu-built.source.txt, line 2: 'tiny' is not name==version"),
    ],
)
def test_a_source_build_that_fails_says_why_and_leaves_nothing(tmp_path, own_cache, monkeypatch, change, said):
    url, lock = index(tmp_path / "index", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    error = failure(built(tmp_path, lock, **{"source": sdist(tmp_path / "index"), **change}), "cpu-built")
    assert said in str(error)
    assert left(own_cache) == []


def test_a_missing_compiler_is_said_before_anything_is_made(tmp_path, own_cache, monkeypatch):
    _, lock = index(tmp_path / "index", "other")
    adapter = built(tmp_path, lock, sdist(tmp_path / "index"))
    interpreter(tmp_path / "bin" / "make")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    message = str(failure(adapter, "cpu-built"))
    assert message == (
        "toy cpu-built: tiny 1.0 is built from source, and g++ is not on PATH. Install it: apt-get install g++"
    )
    assert left(own_cache) == []


@pytest.mark.slow
@pytest.mark.usefixtures("seeds")
def test_a_variant_is_listed_and_made_only_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    url, lock = index(tmp_path / "index", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = built(tmp_path, lock, sdist(tmp_path / "index"))
    assert command.main(["install", "toy"]) == 0
    assert command.main(["list", "toy"]) == 0
    rows = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert rows == [["toy", "cpu", "ready"], ["toy", "cpu-built", "not"]]
    assert command.main(["install", "toy", "--device", "cpu-built"]) == 0
    assert command.main(["remove", "toy", "--device", "cpu"]) == 0
    assert command.main(["list", "toy", "--device", "cpu-built"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["toy", "cpu-built", "ready"]
    kinds.check(kinds.ensure(adapter, "cpu-built"))


# --- interrupted, killed, shared --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wheels_are_downloaded_aside_once_and_with_the_lock(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, lock)
    folder = wheels.fetch(adapter, "cpu")
    assert [path.name for path in (folder / "wheels").iterdir()] == ["tiny-1.0-py3-none-any.whl"]
    assert (folder / "requirements.txt").read_text() == adapter.environments["cpu"].lock.read_text()
    assert folder.name.startswith("toy-cpu-")
    monkeypatch.setenv("PIP_INDEX_URL", REFUSED)
    assert wheels.fetch(adapter, "cpu") == folder, "what is there is not asked for again"


@pytest.mark.slow
def test_wheels_are_those_of_the_environments_python_whatever_runs_pip(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny", "other")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    marked = [
        line.replace(" --hash", f" ; python_full_version {which} '3.9.*' --hash", 1)
        for which, line in zip(("==", "!="), lock, strict=True)
    ]
    folder = wheels.fetch(toy(tmp_path, marked, python=("3.9",)), "cpu")
    assert [path.name for path in (folder / "wheels").iterdir()] == ["tiny-1.0-py3-none-any.whl"]


@pytest.mark.slow
def test_wheels_that_cannot_be_had_leave_nothing(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    shutil.rmtree(tmp_path / "index" / "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    with pytest.raises(RunError, match="toy cpu: no package index offers tiny"):
        wheels.fetch(toy(tmp_path, lock), "cpu")
    assert [path.name for path in (own_cache / "wheels").iterdir() if path.is_dir()] == []


def test_an_interrupted_install_leaves_nothing(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, lock)

    def interrupt(line):
        if "installing" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kinds.ensure(adapter, "cpu", progress=interrupt)
    assert left(own_cache) == []
    with pytest.raises(KeyboardInterrupt):
        kinds.ensure_all([(adapter, "cpu")], progress=interrupt)
    assert left(own_cache) == []
    kinds.check(kinds.ensure(adapter, "cpu"))


@pytest.mark.slow
def test_ctrl_c_ends_pip_and_kill_9_leaves_what_the_next_call_cleans(tmp_path, own_cache, monkeypatch, silent_server):
    url, lock = index(tmp_path / "index", "tiny")
    adapter = toy(tmp_path, lock)
    folder = kinds.planned(adapter, "cpu").folder
    building = own_cache / "envs" / (".building-" + folder.name)
    stuck = {**os.environ, "PIP_INDEX_URL": silent_server}

    def start():
        process = subprocess.Popen([*COMMAND, "install", "toy"], env=stuck, stdout=-1, stderr=-1, text=True)
        wait_for(lambda: any("install" in command_of(pid) for pid in processes_in(building)))
        return process

    process = start()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == "interrupted; nothing half-made is left\n"
    assert left(own_cache) == []
    assert processes_in(building) == []

    process = start()
    process.kill()
    process.communicate(timeout=300)
    assert building.name in left(own_cache)
    with pytest.raises(RunError, match="another process is making it"):  # its pip still writes
        venv_.remove(adapter, "cpu")
    for pid in processes_in(building):
        os.kill(pid, signal.SIGKILL)
    monkeypatch.setenv("PIP_INDEX_URL", url)
    kinds.check(kinds.ensure(adapter, "cpu"))
    assert left(own_cache) == [folder.name]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_an_install_is_never_silent(tmp_path, monkeypatch, silent_server):
    monkeypatch.setattr(making, "BEAT_SECONDS", 0.05)
    monkeypatch.setenv("PIP_INDEX_URL", silent_server)
    lines = []

    def listen(line):
        lines.append(line)
        if len([line for line in lines if "installing" in line]) == 3:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        kinds.ensure(toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")]), "cpu", progress=listen)
    assert re.fullmatch(r"toy cpu: installing tiny 1.0 \(2 of 2\): \d+ s", lines[-1])
    assert lines[0].startswith(("toy cpu: looking for a Python: ", "toy cpu: making an environment with Python "))
    Path(os.devnull).write_bytes(bytes(2_000_000))
    assert re.fullmatch(r", [\d.]+ [MG]B written", making._written(os.getpid()))


def test_waiting_for_another_process_is_never_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "BEAT_SECONDS", 0.01)
    adapter = toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])
    folder = kinds.planned(adapter, "cpu").folder
    folder.parent.mkdir(parents=True)
    lines = []

    def listen(line):
        lines.append(line)
        if len(lines) == 3:
            raise KeyboardInterrupt

    with guard.guard(folder, busy=lambda: pytest.fail("nobody else is here")), pytest.raises(KeyboardInterrupt):
        kinds.ensure(adapter, "cpu", progress=listen)
    assert lines[0] == "toy cpu: waiting for another process that makes it"
    assert all(re.fullmatch(re.escape(lines[0]) + r": \d+ s", line) for line in lines[1:])


@pytest.mark.slow
def test_of_two_callers_one_makes_it_and_the_other_waits(tmp_path, own_cache, monkeypatch, capsys):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, lock)
    folder = kinds.planned(adapter, "cpu").folder
    folder.parent.mkdir(parents=True)
    with guard.guard(folder, busy=lambda: pytest.fail("nobody else is here")):
        callers = [subprocess.Popen([*COMMAND, "install", "toy"], stdout=-1, text=True) for _ in range(2)]
        for caller in callers:
            assert caller.stdout.readline() == "toy cpu: waiting for another process that makes it\n"
        with pytest.raises(RunError, match="another process is making it"):
            venv_.remove(adapter, "cpu")
        assert command.main(["remove", "toy"]) == 1
        assert command.main(["list", "toy"]) == 0
        assert "building" in capsys.readouterr().out
    said = [caller.communicate(timeout=300)[0] for caller in callers]
    assert [caller.returncode for caller in callers] == [0, 0]
    assert sum("installing" in text for text in said) == 1
    assert left(own_cache) == [folder.name]


# --- package indexes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("asks_pip")
def test_dead_extra_indexes_are_left_out_and_said(tmp_path, monkeypatch, silent_server):
    url, lock = index(tmp_path / "index", "tiny")
    (tmp_path / "home" / "pip").mkdir(parents=True)
    (tmp_path / "home" / "pip" / "pip.conf").write_text(
        f"[global]\nindex-url = {url}\nextra-index-url =\n    {REFUSED}\n    {silent_server}\n"
        "[install]\nfind-links = /no/such/folder\n"
    )
    lines = []
    kinds.check(kinds.ensure(toy(tmp_path, lock), "cpu", progress=lines.append))
    dead = [line for line in lines if "leaving out" in line]
    assert len(dead) == 3
    assert f"leaving out the package index {REFUSED}: it does not answer" in dead


@pytest.mark.slow
@pytest.mark.usefixtures("asks_pip")
def test_a_living_extra_index_is_used_beside_a_dead_one_and_passwords_are_not_shown(tmp_path, monkeypatch):
    empty, _ = index(tmp_path / "empty")
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", empty)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://me:secret@127.0.0.1:9/simple {url}")
    lines = []
    kinds.check(kinds.ensure(toy(tmp_path, lock), "cpu", progress=lines.append))
    assert any("http://127.0.0.1:9/simple" in line for line in lines)
    assert not any("secret" in line for line in lines)


def test_all_indexes_count_not_the_first_that_knows_a_package(tmp_path, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    wheel(tmp_path / "old" / "tiny", "tiny", "0.5")
    (tmp_path / "old" / "tiny" / "index.html").write_text('<a href="tiny-0.5-py3-none-any.whl">0.5</a>')
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "old").as_uri())
    kinds.check(kinds.ensure(toy(tmp_path, lock), "cpu"))


def test_the_adapters_own_index_is_asked_only_for_what_is_missing(tmp_path, monkeypatch):
    empty, _ = index(tmp_path / "empty")
    url, lock = index(tmp_path / "index", "tiny")
    adapter = toy(tmp_path, lock, more=f'extra_index = ["{url}"]')
    monkeypatch.setenv("PIP_INDEX_URL", empty)
    lines = []
    kinds.ensure(adapter, "cpu", progress=lines.append)
    assert f"toy cpu: tiny==1.0 is not on the usual index; also looking at {url}" in lines
    venv_.remove(adapter, "cpu")

    monkeypatch.setenv("PIP_INDEX_URL", url)
    kinds.ensure(toy(tmp_path, lock, more='extra_index = ["http://127.0.0.1:9/simple"]'), "cpu", progress=lines.append)


@pytest.mark.slow
def test_no_network_and_no_such_package_are_told_apart(tmp_path, own_cache, monkeypatch):
    empty, _ = index(tmp_path / "empty")
    adapter = toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")], distribution="numpy")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_INDEX_URL", REFUSED)
    error = failure(adapter)
    assert f"toy cpu: no network: uv cannot reach {REFUSED}/tiny/" in str(error)
    assert f"{sys.executable} has numpy {importlib.metadata.version('numpy')}: --env current runs it" in str(error)
    assert error.lines
    monkeypatch.setenv("PIP_INDEX_URL", empty)
    assert "no package index offers tiny==1.0 for this Python and machine" in str(failure(adapter))
    assert left(own_cache) == []


def test_what_pip_is_told_uv_is_told_and_uvs_own_variables_win(monkeypatch):
    given = {
        "index-url": "https://mirror/simple",
        "extra-index-url": "https://one/simple https://two/simple",
        "find-links": "/wheels https://links ~/more",
        "trusted-host": "mirror two",
        "cert": "/ca.pem",
        "client-cert": "/me.pem",
        "proxy": "http://proxy:3128",
        "timeout": "7.5",
        "retries": "1",
        "no-index": "true",
    }
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SSL_CERT_FILE", "/of/conda.pem")
    sources = Sources(given)
    told = sources.for_uv(["https://own"])
    assert told["UV_DEFAULT_INDEX"] == "https://mirror/simple"
    assert told["UV_INDEX"] == "https://one/simple https://two/simple https://own"
    assert told["UV_FIND_LINKS"] == "/wheels,https://links,/home/me/more"
    assert told["UV_INSECURE_HOST"] == "mirror two"
    assert (told["SSL_CERT_FILE"], told["SSL_CLIENT_CERT"]) == ("/ca.pem", "/me.pem")
    assert told["HTTPS_PROXY"] == told["https_proxy"] == "http://proxy:3128"
    assert (told["UV_HTTP_TIMEOUT"], told["UV_HTTP_RETRIES"]) == ("8", "1")
    assert sources.uv_options() == ["--no-index"]
    assert Sources({}).uv_options() == []

    monkeypatch.setenv("UV_INDEX_URL", "https://mine/simple")
    monkeypatch.setenv("UV_FIND_LINKS", "/mine")
    told = sources.for_uv()
    assert (told["UV_INDEX_URL"], told["UV_FIND_LINKS"]) == ("https://mine/simple", "/mine")
    assert "UV_DEFAULT_INDEX" not in told


@pytest.mark.slow
@pytest.mark.usefixtures("asks_pip")
def test_without_a_pip_uv_stands_alone_and_wheels_say_so(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    bare = tmp_path / "bare"
    subprocess.run([pythons.uv(), "venv", "--quiet", "--python", sys.executable, bare], check=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    monkeypatch.setenv("PIP_INDEX_URL", REFUSED)
    monkeypatch.setenv("UV_DEFAULT_INDEX", url)
    adapter = toy(tmp_path, lock)
    kinds.check(kinds.ensure(adapter, "cpu"))
    with pytest.raises(RunError, match=r"downloaded by pip, which .*bare/bin/python lacks. Install it: .* pip$"):
        wheels.fetch(adapter, "cpu")


def test_variables_of_uv_that_would_make_another_environment_are_dropped(tmp_path, own_cache, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    nowhere = str(tmp_path / "nowhere")
    redirects = ["UV_TARGET", "UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV", "UV_PYTHON", "UV_CONSTRAINT", "UV_OVERRIDE"]
    for name in [*redirects, "UV_PROJECT", "UV_WORKING_DIR", "PYTHONPATH", "PYTHONHOME", "UV_PYTHON_SEARCH_PATH"]:
        monkeypatch.setenv(name, nowhere)
    flags = {"UV_SYSTEM_PYTHON": "1", "UV_EXCLUDE_NEWER": "2001-01-01", "UV_LINK_MODE": "symlink", "UV_NO_BINARY": "1"}
    for name, value in {**flags, "UV_INDEX_STRATEGY": "first-index"}.items():
        monkeypatch.setenv(name, value)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.uv]\nrequired-version = "<0.1"\n'
    )
    monkeypatch.chdir(project)
    env = kinds.ensure(toy(tmp_path, lock), "cpu")
    ran = subprocess.run([env.python, "-I", "-c", "import tiny; print(tiny.__file__)"], capture_output=True, text=True)
    assert ran.stdout.startswith(str(env.folder))
    assert not Path(ran.stdout.strip()).is_symlink()
    assert not Path(nowhere).exists()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("UV_CACHE_DIR", "/proc/none", "`/proc/none`"),
        ("UV_CONFIG_FILE", "/no/such/uv.toml", "failed to open file `/no/such/uv.toml`"),
        ("UV_FIND_LINKS", "/no/such/links", "Failed to read `--find-links` directory: /no/such/links"),
        ("UV_DEFAULT_INDEX", REFUSED, f"no network: uv cannot reach {REFUSED}/tiny/"),
        ("UV_OFFLINE", "1", "no package index offers tiny==1.0"),
    ],
)
def test_a_variable_of_uv_that_is_wrong_is_named(tmp_path, own_cache, monkeypatch, name, value, said):
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv(name, value)
    error = str(failure(toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])))
    assert error.startswith("toy cpu: ")
    assert said in error
    assert error.endswith(f"; {name} is {value}")
    assert left(own_cache) == []


# --- locks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "number", "what"),
    [
        (["a==1 --hash=sha256:" + "0" * 64, "", "tiny=>1"], 4, "'tiny=>1' is not"),
        (["tiny==1.0"], 2, "'tiny==1.0' is not"),
        (["tiny==1.0 \\", "    --hash=sha256:0000"], 2, "is not name==version"),
        (["<<<<<<< mine"], 2, "is not name==version"),
        ([], 1, "it lists no package"),
    ],
)
def test_a_corrupt_lock_is_named_with_its_line_before_anything_is_made(tmp_path, own_cache, lines, number, what):
    adapter = toy(tmp_path, lines)
    error = failure(adapter)
    assert str(error).startswith(f"{adapter.environments['cpu'].lock}, line {number}: ")
    assert what in str(error)
    assert left(own_cache) == []


def test_a_wrong_hash_is_named_with_its_line(tmp_path, own_cache, monkeypatch):
    url, (good, bad) = index(tmp_path / "index", "other", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    adapter = toy(tmp_path, [good, bad[:-64] + "0" * 64])
    error = failure(adapter)
    assert f"{adapter.environments['cpu'].lock}, line 3: the hash of tiny==1.0 is not that of the file" in str(error)
    assert left(own_cache) == []


def test_a_missing_lock_is_named(tmp_path):
    adapter = toy(tmp_path, [])
    adapter.environments["cpu"].lock.unlink()
    message = str(failure(adapter))
    assert message.startswith(f"toy cpu: it has no lock for {os.uname().machine}: there is no ")
    assert message.endswith("/requirements.cpu.txt")


LOCKS = sorted(Path(dlperf.adapters.__path__[0]).glob("*/requirements.*.txt"))
IDS = [f"{lock.parent.name}-{lock.stem.removeprefix('requirements.')}" for lock in LOCKS]


@pytest.mark.parametrize("lock", LOCKS, ids=IDS)
def test_every_lock_of_ours_is_whole_and_names_no_place(lock):
    names = {requirement.name for requirement in locks.read(lock)}
    if lock.stem.endswith(".source"):
        assert len(names) == 1
    else:
        assert names & set(reader.read(lock.parent).distribution)
        assert "numpy" in names
    text = lock.read_text()
    assert text.startswith("# Made by: uv pip compile ")
    for place in ("://", "--index", "--find-links"):
        assert place not in text + lock.with_suffix(".in").read_text()


def test_every_environment_of_ours_has_a_lock():
    specs = [spec for adapter in reader.adapters().values() for spec in adapter.environments.values()]
    wanted = {lock for spec in specs for lock in spec.locks}
    assert wanted - {lock for lock in wanted if lock.parent.name == "fake" and "cuda" in lock.name} == set(LOCKS)


# --- Pythons ----------------------------------------------------------------------------------------------------------


def interpreter(path, version="", code=0, error=""):
    """A program that answers as a Python of that version would, or that only fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    says = f"echo {path}; echo {version}; " if version else ""
    path.write_text(f'#!/bin/sh\n{says}echo "{error}" >&2; exit {code}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with no Python but the one that runs this."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_a_python_is_run_before_it_is_believed(machine):
    interpreter(machine / "bin" / "python3.5", code=127)  # as the shims of pyenv
    old = interpreter(machine / "pyenv" / "versions" / "3.5.9" / "bin" / "python", "3.5.9")
    new = interpreter(machine / "pyenv" / "versions" / "3.5.10" / "bin" / "python", "3.5.10")
    assert pythons.find(["3.5"]).path == new
    new.unlink()
    assert pythons.find(["3.4", "3.5"]).path == old
    first = interpreter(machine / "bin" / "python3", "3.4.2")
    assert pythons.find(["3.4", "3.5"]).path == first
    assert pythons.find([MINOR]).path.exists()


def test_no_fitting_python_says_what_to_install(machine):
    adapter = toy(machine, [wheel(machine / "wheels", "tiny")], python=["3.5", "3.4"])
    message = str(failure(adapter))
    assert "no Python 3.5 or 3.4 on PATH, in pyenv or in uv, and uv cannot fetch one: No download found" in message
    assert "`pyenv install 3.5`" in message
    broken = interpreter(machine / "bin" / "python3.5", "3.5.1", code=1, error="No module named '_ssl'")
    assert f"; {broken} is not usable: No module named '_ssl', and uv" in str(failure(adapter))


def real_python(folder):
    """An archive of the Python that runs this, as uv fetches them: no tests, no packages."""
    stdlib, program = Path(sysconfig.get_path("stdlib")), Path(sys.executable).resolve()
    without = {"test", "tests", "idlelib", "site-packages", "dist-packages", "ensurepip", "__pycache__", "lib2to3"}

    def wanted(member):
        parts = Path(member.name).parts
        left = without & set(parts) or any(part.startswith("config-") for part in parts)
        return None if left or os.path.isabs(member.linkname) else member  # Debian links to /etc, which uv refuses

    folder.mkdir(parents=True)
    with tarfile.open(folder / "python.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(program, f"python/bin/python{MINOR}")
        archive.add(stdlib, f"python/lib/python{MINOR}", filter=wanted)
    return folder / "python.tar.gz"


def mirror(root, archive, monkeypatch):
    """uv's list of Pythons has only this one, which it finds on a mirror."""
    published = "https://github.com/astral-sh/python-build-standalone/releases/download/1/python.tar.gz"
    arch = {"family": os.uname().machine, "variant": None}
    major, minor, patch = sys.version_info[:3]
    entry = {"name": "cpython", "arch": arch, "os": "linux", "libc": "gnu", "variant": None, "prerelease": ""}
    entry |= {"major": major, "minor": minor, "patch": patch, "url": published, "build": "1"}
    entry["sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    (root / "list.json").write_text(json.dumps({f"cpython-{major}.{minor}.{patch}-linux-{arch['family']}-gnu": entry}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(root / "list.json"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", (root / "mirror").as_uri())


@pytest.fixture
def nothing_at_hand(monkeypatch):
    """No Python but those that uv fetched."""
    monkeypatch.setattr(pythons, "_candidates", lambda version, run: filter(None, [pythons._managed(version, run)]))


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_at_hand")
def test_uv_fetches_the_python_that_a_lock_wants_from_a_mirror(tmp_path, monkeypatch):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    mirror(tmp_path, real_python(tmp_path / "mirror" / "1"), monkeypatch)
    lines = []
    made = kinds.ensure_all([(toy(tmp_path, lock, name), "cpu") for name in ("one", "two")], progress=lines.append)
    assert not [str(one) for one in made if isinstance(one, RunError)]
    fetched = tmp_path / "home" / ".local" / "share" / "uv" / "python"
    for env in made:
        ran = subprocess.run(
            [env.python, "-c", "import tiny, sys; print(sys.base_prefix)"], capture_output=True, text=True
        )
        assert ran.stdout.startswith(str(fetched)), ran.stderr
    assert len([line for line in lines if line.endswith(f"no Python {MINOR} here; uv fetches one")]) == 1
    assert not (tmp_path / "home" / ".local" / "bin").exists(), "nothing is put on the user's PATH"


@pytest.mark.usefixtures("nothing_at_hand")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("UV_OFFLINE", "1", "; UV_OFFLINE is 1."),
        ("UV_PYTHON_DOWNLOADS", "never", "Python downloads are not allowed"),
        ("UV_PYTHON_DOWNLOADS", "manual", "UV_PYTHON_DOWNLOADS is manual."),
        ("UV_PYTHON_DOWNLOADS", "perhaps", "invalid value for UV_PYTHON_DOWNLOADS"),
        ("UV_PYTHON_INSTALL_MIRROR", "file:///no/such/mirror", "; UV_PYTHON_INSTALL_MIRROR is file:///no/such/mirror."),
        ("UV_PYTHON_INSTALL_DIR", "/proc/none", "; UV_PYTHON_INSTALL_DIR is /proc/none."),
        ("UV_CONFIG_FILE", "/no/such/uv.toml", "; UV_CONFIG_FILE is /no/such/uv.toml."),
    ],
)
def test_a_python_that_cannot_be_fetched_is_an_error_that_names_why(tmp_path, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    error = str(failure(toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])))
    assert f"no Python {MINOR} on PATH, in pyenv or in uv, and uv cannot fetch one: " in error
    assert said in error
    assert error.endswith(f"or your system's python{MINOR}")


@pytest.mark.usefixtures("nothing_at_hand")
def test_without_a_network_uv_is_asked_for_a_python_once(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9/mirror")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    lock = [wheel(tmp_path / "wheels", "tiny")]
    lines = []
    wanted = [(toy(tmp_path, lock, name), "cpu") for name in ("one", "two", "three")]
    made = kinds.ensure_all(wanted, progress=lines.append)
    assert all("Connection refused" in str(error) for error in made)
    assert len([line for line in lines if "uv fetches one" in line]) == 1


def test_a_folder_of_pythons_that_cannot_be_read_is_passed_over(machine, monkeypatch):
    real, scan = os.stat, os.scandir

    def refuse(path):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(str(machine / "pyenv")):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return path

    monkeypatch.setenv("PATH", f"{machine}/pyenv/bin:{machine}/bin")
    monkeypatch.setattr(os, "stat", lambda path, *rest, **more: real(refuse(path), *rest, **more))
    monkeypatch.setattr(os, "scandir", lambda path=".": scan(refuse(path)))
    with pytest.raises(PermissionError):
        (machine / "pyenv" / "bin" / "python3.5").exists()
    usable = interpreter(machine / "bin" / "python3.5", "3.5.9")
    assert pythons.find(["3.5"]).path == usable


def test_a_python_without_ssl_or_of_another_kind_is_passed_over(machine):
    interpreter(machine / "bin" / "python3.5", "3.5.9", code=1, error="No module named '_ssl'")
    good = interpreter(machine / "pyenv" / "versions" / "3.5.2" / "bin" / "python", "3.5.2")
    assert pythons.find(["3.5"]).path == good


# --- the disk, and the command ----------------------------------------------------------------------------------------


def test_a_full_disk_is_a_sentence(tmp_path, own_cache, monkeypatch):
    adapter = toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])
    said = "error: Failed to extract archive\n  cause: No space left on device (os error 28)"
    full = tmp_path / "uv"
    full.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    full.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(pythons, "uv", lambda: str(full))
        error = failure(adapter)
    assert "toy cpu: the disk is full" in str(error)
    assert "DLPERF_CACHE, UV_CACHE_DIR" in str(error)

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pythons, "find", no_space)
    assert "toy cpu: the disk is full" in str(failure(adapter))
    assert left(own_cache) == []


def test_an_unusable_cache_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "file"))
    message = str(failure(toy(tmp_path, [wheel(tmp_path / "wheels", "tiny")])))
    assert str(tmp_path / "file") in message
    assert "DLPERF_CACHE" in message


def test_a_wrong_name_is_a_usage_error(capsys):
    assert command.main(["install", "pytorhc", "jaxx"]) == 2
    said = capsys.readouterr().err
    assert "'pytorhc'" in said
    assert "Did you mean 'pytorch'?" in said
    assert "Did you mean 'jax'?" in said


def test_the_command_installs_says_why_not_and_removes(tmp_path, monkeypatch, capsys):
    url, lock = index(tmp_path / "index", "tiny")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    toy(tmp_path, lock)
    toy(tmp_path, ["nonsense"], name="bad")
    assert command.main(["install", "toy", "bad"]) == 1
    said = capsys.readouterr()
    assert "toy cpu: ready in" in said.out
    assert "bad/requirements.cpu.txt, line 2" in said.err
    assert command.main(["list", "toy"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[2] == "ready"
    assert command.main(["check", "toy", "bad"]) == 0
    assert capsys.readouterr().out == "toy cpu: as installed\n"
    (module,) = (tmp_path / "cache").glob("**/site-packages/tiny.py")
    module.unlink()
    assert command.main(["check", "toy"]) == 1
    assert capsys.readouterr().out == "toy cpu: not as its wheels have it: tiny.py\n"
    assert command.main(["remove", "toy"]) == 0
    said = capsys.readouterr().out
    assert "toy cpu: removed" in said
    assert "uv cache clean` deletes it" in said


@pytest.mark.parametrize("verb", ["check", "remove"])
def test_a_folder_that_no_lock_explains_is_named_with_its_size_and_what_deletes_it(own_cache, capsys, verb):
    strange = own_cache / "envs" / "of somebody else"
    strange.mkdir(parents=True)
    (strange / "file").write_bytes(bytes(3_000_000))
    making = own_cache / "envs" / ".building-toy-cpu-0123456789ab"
    making.mkdir()
    with guard.guard(own_cache / "envs" / "toy-cpu-0123456789ab", busy=pytest.fail):
        assert command.main([verb]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"{strange}: 3 MB, of no lock that is here, so nothing uses it; rm -r '{strange}' deletes it"
    assert str(making) not in "".join(said)
    assert command.main([verb, "jax"]) == 0
    assert str(strange) not in capsys.readouterr().out


def test_threads_that_never_get_an_answer_do_not_outlive_the_probe(silent_server, monkeypatch):
    monkeypatch.setattr(indexes, "PROBE_SECONDS", 0.5)
    before = threading.active_count()
    sources = [silent_server, REFUSED, "file:///", "/no/such/folder"]
    assert indexes._dead(sources) == {silent_server, REFUSED, "/no/such/folder"}
    wait_for(lambda: threading.active_count() <= before)


@pytest.fixture
def made(tmp_path, monkeypatch, capsys):
    """An environment of two packages, whose Python counts as the system's."""
    monkeypatch.setattr(packed, "SYSTEMS", (Path(sys.base_prefix),))
    url, lock = index(tmp_path / "index", "tiny", "small")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    env = kinds.ensure(toy(tmp_path, lock), "cpu")
    return env


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_environment_is_carried_to_a_machine_without_a_network(made, beside, tmp_path, monkeypatch, capsys):
    """beside: with its Python, which need not be there."""
    if beside:
        monkeypatch.setattr(packed, "SYSTEMS", ())
    file = tmp_path / "carried.tar"
    assert command.main(["pack", "toy", "-o", str(file)]) == 0
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "there"))
    monkeypatch.setenv("PIP_INDEX_URL", REFUSED)
    assert command.main(["unpack", str(file)]) == 0
    env = kinds.ensure(made_again := reader.read(tmp_path / "adapters" / "toy"), "cpu")
    assert (env.folder.parent, env.digest) == (tmp_path / "there" / "envs", made.digest)
    code = "import sys, tiny; print(sys.base_prefix)"
    printed = subprocess.run([env.python, "-c", code], capture_output=True, text=True, check=True).stdout
    version = Path(sys.base_prefix).name
    assert printed.strip() == (f"{tmp_path}/there/pythons/{version}" if beside else sys.base_prefix)
    assert command.main(["check", made_again.name]) == 0
    assert "toy cpu: as installed" in capsys.readouterr().out


def test_what_cannot_be_packed_or_unpacked_is_told(made, tmp_path, monkeypatch, capsys):
    file = tmp_path / "carried.tar"
    assert command.main(["pack", "toy", "-o", str(file)]) == 0
    assert command.main(["pack", "toy", "-o", str(file)]) == 1
    assert "is there already" in capsys.readouterr().err
    whole = file.read_bytes()
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path / "there"))
    for damaged in (whole[: len(whole) // 2], b"", b"no tar" * 1000, whole.replace(b'{"toy-', b'{"../-')):
        file.write_bytes(damaged)
        assert command.main(["unpack", str(file)]) == 1
        assert "not what `python -m dlperf.envs pack` wrote" in capsys.readouterr().err
        assert [path for path in (tmp_path / "there").rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    assert command.main(["pack", "toy", "-o", str(tmp_path / "other.tar")]) == 1
    assert "not made: toy cpu. Make them: python -m dlperf.envs install" in capsys.readouterr().err
    for words, says in (
        (["unpack"], "FILE"),
        (["unpack", "nothing.tar"], "'nothing.tar'"),
        (["list", "-o", "x"], "--output"),
    ):
        assert command.main(words) == 2
        assert says in capsys.readouterr().err

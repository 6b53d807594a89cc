"""A program that stands in for docker and podman: it knows one image, and runs its containers as processes here.

What it was called with is in the file calls beside it. DOCKER_SAYS makes it fail with that text, DOCKER_FAILS only for
one verb.
"""

import sys

IMAGE = "example/fake:1"
DIGEST = "c0ffee" + 58 * "0"
#: of a Python program that is a script: a first line with the interpreter's path can't have a space in it
START = f"""\
#!/bin/sh
"exec" "{sys.executable}" "$0" "$@"
"""
PROGRAM = """\
import json, os, sys
words, here = sys.argv[1:], os.path.dirname(os.path.abspath(sys.argv[0]))
with open(here + "/calls", "a") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *words]) + "\\n")
verb = words[0]
said = os.environ.get("DOCKER_SAYS")
if said and os.environ.get("DOCKER_FAILS", verb) == verb:
    sys.exit((sys.stderr.write(said + "\\n"), {code})[1])
image = {image!r}
if verb == "image":
    if words[2] != image and not os.path.exists(here + "/pulled"):
        sys.exit((sys.stderr.write("Error: No such image: " + words[2] + "\\n"), 1)[1])
    print(json.dumps([dict(Id="sha256:" + {digest!r}, RepoDigests=["example/fake@sha256:feed"], Size=5)]))
elif verb == "pull":
    open(here + "/pulled", "w").close()
elif verb == "buildx":
    sys.exit(0 if os.path.exists(here + "/buildx") else 1)
elif verb == "--version":
    print("Docker version 28.0.0, build 0")
elif verb == "build":
    open(here + "/built", "w").write(sys.stdin.read())
elif verb == "images":
    print("localhost/dlperf/fake:cpu-0|sha256:1|5MB|2026-01-01 00:00:00")
elif verb == "run":
    at = next(number for number, word in enumerate(words) if word == image or word.startswith("dlperf/"))
    given = words[1:at]
    values = [given[number + 1] for number, word in enumerate(given) if word == "--env"]
    environ = dict(value.split("=", 1) for value in values if "=" in value)
    environ.update((value, os.environ[value]) for value in values if value in os.environ)
    environ["PATH"] = here + ":" + os.environ["PATH"]
    if "--workdir" in given:
        os.chdir(given[given.index("--workdir") + 1])
    os.execvpe(words[at + 1], words[at + 1:], environ)
"""


def install(folder, name="docker", code=1):
    """Put it into a folder, for the front of PATH, with a `python` for what runs inside."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(START + PROGRAM.format(image=IMAGE, digest=DIGEST, code=code))
    path.chmod(0o755)
    inside = folder / "python"
    inside.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    inside.chmod(0o755)
    return path

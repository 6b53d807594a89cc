"""Who may import whom, read from the source. Left may import right, and nothing else."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRAMEWORKS = {"torch", "tensorflow", "jax", "jaxlib", "mxnet", "paddle", "oneflow", "horovod", "apex"}
#: what loaders of images use besides their framework
LOADERS = {"grain", "nvidia"}
FOLDERS = {"": "dlperf", "adapters": "adapters", "models": "models", "launchers": "launchers", "report": "report"}

#: module of dlperf -> modules of dlperf that it may import, besides itself and those of its right-hand neighbours
LAYERS = [
    {"__main__"},
    {"doctor", "images", "scaling"},
    {"compare", "verify"},
    {"cli", "comparison", "report"},
    {"upstream"},
    {"figures"},
    {"proof"},
    {"planning", "runs"},
    {"data"},
    {"envs"},
    {"docker"},
    {"catalog", "schema", "launchers", "machine"},
    {"adapters", "models", "cache", "errors", "shell", ""},
]


def modules():
    """(package, or module, inside dlperf; path) of every module of the core."""
    for path in sorted((ROOT / "dlperf").rglob("*.py")):
        yield path.relative_to(ROOT / "dlperf").with_suffix("").parts[0], path
    for folder in ("docker", "launchers", "report"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield folder, path


def imports(path):
    """Top-level names, and modules of dlperf as "dlperf.x", that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {".".join(name.split(".")[:3]) for name in found}


def layer(name):
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    raise AssertionError(f"{name} is in no layer: add it to LAYERS")


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: getattr(value, "name", value))
def test_the_core_imports_to_the_right_only(name, path):
    if name == "__init__":
        return
    known = {name for name, _ in modules()} | {"adapters", "models"}
    for imported in imports(path):
        parts = imported.split(".")
        if parts[0] == "dlperf" and len(parts) > 1 and parts[1] in known and parts[1] != name:
            assert layer(parts[1]) >= layer(name), f"{path.name} imports {imported}"


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: getattr(value, "name", value))
def test_the_core_imports_no_framework_and_no_adapter(name, path):
    for imported in imports(path):
        assert imported.split(".")[0] not in FRAMEWORKS
        if imported.startswith("dlperf.adapters."):
            assert imported.split(".")[2] in ("api", "cpu", "probe", "ranks", "trace"), imported


@pytest.mark.parametrize("path", sorted((ROOT / "adapters").glob("*/*.py")), ids=lambda path: "/".join(path.parts[-2:]))
def test_an_adapter_imports_one_framework_and_the_contract(path):
    own = path.parent.name
    found = imports(path)
    frameworks = {name.split(".")[0] for name in found} & FRAMEWORKS
    assert len(frameworks - {"jaxlib", "horovod", "apex"}) <= 1, frameworks
    for name in found:
        if name.startswith("dlperf.adapters."):
            assert name.split(".")[2] in ("api", "cpu", "dali", "horovod", "opencv", "ranks", "spawn", own), name
    loaders = LOADERS if path.name == "images.py" else set()
    allowed = {*FRAMEWORKS, *loaders, "dlperf", "numpy"} | set(sys.stdlib_module_names)
    assert {name.split(".")[0] for name in found} <= allowed


@pytest.mark.parametrize("path", sorted((ROOT / "adapters").glob("*/runtime.py")), ids=lambda path: path.parent.name)
def test_nothing_imports_a_framework_before_what_its_libraries_read_is_set(path):
    """Where runtime.py sets variables before it imports the framework, the families take the framework from there."""
    text = path.read_text(encoding="utf-8")
    first = min(
        number for number, line in enumerate(text.splitlines()) if line.split(" ")[0:2] == ["import", first_of(path)]
    )
    if "os.environ.setdefault" not in "\n".join(text.splitlines()[:first]):
        return
    for family in ("resnet.py", "bert.py"):
        assert not {name.split(".")[0] for name in imports(path.with_name(family))} & FRAMEWORKS


def first_of(path):
    """The framework that an adapter's runtime imports first."""
    words = [line.split(" ")[1] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("import ")]
    return next(word for word in words if word in FRAMEWORKS)


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "models").glob("*.py"), *(ROOT / "adapters").glob("*.py")]),
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_the_shared_worker_side_needs_numpy_alone(path):
    own = {"horovod.py": {"horovod"}, "dali.py": {"nvidia"}, "opencv.py": {"cv2"}}.get(path.name, set())
    allowed = {"dlperf", "numpy", *own} | set(sys.stdlib_module_names)
    assert {name.split(".")[0] for name in imports(path)} <= allowed

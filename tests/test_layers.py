"""Who may import whom, read from the source."""

import ast
import functools
import sys

import pytest
from places import ROOT

FRAMEWORKS = {"torch", "tensorflow", "jax", "jaxlib", "mxnet", "paddle", "oneflow", "horovod", "apex"}
#: of adapters, what NumPy's networks need besides
OF_ADAPTERS = FRAMEWORKS | {"scipy"}
#: modules of adapters -> what they use besides their framework: loaders of images, and tables over ranks
BESIDES = {"photos.py": {"grain", "nvidia"}, "sharded.py": {"torchrec"}}
#: folders of the core, by the package that they are
FOLDERS = {"dlperf": "dlperf", "dlperf.docker": "docker", "dlperf.launchers": "launchers", "dlperf.report": "report"}
#: the core, from the commands down to the ground: what stands on a line imports from lines below it alone
LAYERS = (
    ("__main__",),
    ("site",),
    (
        "archive.__main__",
        "audit.__main__",
        "compare",
        "completion",
        "data.__main__",
        "diff",
        "doctor",
        "envs.__main__",
        "images",
        "importlogs.__main__",
        "list",
        "publish",
        "repeat",
        "report.__main__",
        "scaling",
        "show",
        "table",
        "verify",
        "why",
    ),
    ("library",),
    ("submission",),
    ("parcel",),
    ("given",),
    ("cli",),
    ("flags",),
    ("archive",),
    ("report",),
    ("audit",),
    ("sources",),
    ("importlogs",),
    ("comparison",),
    ("systems",),
    ("upstream",),
    ("figures",),
    ("proof",),
    ("runs",),
    ("planning",),
    ("data",),
    ("envs",),
    ("docker",),
    ("revision",),
    ("catalog",),
    ("launchers",),
    ("machine",),
    ("archive.tar",),
    ("precision",),
    ("stored",),
    ("schema",),
    ("kind",),
    ("cache",),
    ("words",),
    ("markdown",),
    ("shell",),
    ("processes",),
    ("errors",),
    ("needs",),
    ("dlperf",),  # the version
)
#: both sides: see the tests below
WORKER_SIDE = ("adapters", "models")
#: of the worker side, what the core may import
SHARED = ("api", "compression", "cpu", "gpu", "probe", "profiling", "ranks", "trace", "variables")


def modules():
    """(name, path) of every module of the core: "dlperf.planning.spec"."""
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


@functools.cache
def imports(path):
    """All that a file imports anywhere, as dotted names: "numpy", "dlperf.errors.Problem"."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def graph():
    """Each module of the core with those of dlperf that it imports, the worker side too."""
    known = dict(modules())
    return {
        name: {target for one in imports(path) if one.startswith("dlperf.") for target in [module(one, known)]} - {name}
        for name, path in known.items()
        if name != "dlperf"  # what it imports, it imports when a user asks for it
    }


def module(name, known):
    """The module that an imported name is, or is in."""
    parent = name.rpartition(".")[0]
    return name if name in known or parent not in known else parent


def layer(name):
    """The number of a module's line; None for the worker side."""
    inside = name.removeprefix("dlperf.")
    for number, packages in enumerate(LAYERS):
        if inside in packages:
            return number
    package = inside.partition(".")[0]
    if package in WORKER_SIDE:
        return None
    found = [number for number, packages in enumerate(LAYERS) if package in packages]
    assert found, f"{name} is in no layer: add it to LAYERS"
    return found[0]


def upward(found):
    """The imports that do not go down, nor stay in their package."""
    wrong = []
    for name, targets in found.items():
        for target in targets:
            package = name.split(".")[:2]
            if layer(target) is None or (target.split(".")[:2] == package and layer(target) >= layer(name)):
                continue
            if layer(target) <= layer(name):
                wrong.append(f"{name} -> {target}")
    return sorted(wrong)


def circles(found):
    """Modules that import each other, however far around."""
    wrong, done = [], set()

    def visit(name, path):
        if name in path:
            wrong.append(" -> ".join([*path[path.index(name) :], name]))
        elif name not in done:
            for target in sorted(found.get(name, ())):
                visit(target, [*path, name])
            done.add(name)

    for name in sorted(found):
        visit(name, [])
    return wrong


def test_every_import_of_the_core_goes_down():
    assert upward(graph()) == []


def test_no_modules_import_each_other():
    assert circles(graph()) == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("dlperf.catalog.reader", "dlperf.envs.kinds"),
        ("dlperf.docker.build", "dlperf.envs.wheels"),
        ("dlperf.launchers.api", "dlperf.runs.execute"),
        ("dlperf.planning.plan", "dlperf.upstream.commands"),
        ("dlperf.proof.judge", "dlperf.figures.rates"),
        ("dlperf.report.view", "dlperf.compare"),
        ("dlperf.schema", "dlperf.catalog.adapter"),
        ("dlperf.envs.venv", "dlperf.envs.__main__"),
        ("dlperf.verify", "dlperf.compare"),
    ],
)
def test_an_import_that_goes_up_is_found(name, target):
    found = graph()
    found[name].add(target)
    assert upward(found) == [f"{name} -> {target}"]


def test_a_circle_is_found():
    found = graph()
    found["dlperf.envs.target"].add("dlperf.envs.venv")
    assert any("dlperf.envs.target -> dlperf.envs.venv" in one for one in circles(found))


def test_a_module_without_a_layer_is_an_error():
    with pytest.raises(AssertionError, match=r"dlperf.attic.old is in no layer"):
        upward({"dlperf.attic.old": {"dlperf.errors"}})


def test_no_module_of_the_core_is_longer_than_400_lines():
    long = [name for name, path in modules() if len(path.read_text(encoding="utf-8").splitlines()) > 400]
    assert long == []


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda value: getattr(value, "name", value))
def test_the_core_imports_no_framework_and_no_adapter(name, path):
    for imported in imports(path):
        assert imported.split(".")[0] not in FRAMEWORKS
        if imported.startswith("dlperf.adapters."):
            assert imported.split(".")[2] in SHARED, imported


@pytest.mark.parametrize("path", sorted((ROOT / "adapters").glob("*/*.py")), ids=lambda path: "/".join(path.parts[-2:]))
def test_an_adapter_imports_one_framework_and_the_contract(path):
    own = path.parent.name
    found = imports(path)
    frameworks = {name.split(".")[0] for name in found} & OF_ADAPTERS
    assert len(frameworks - {"jaxlib", "horovod", "apex"}) <= 1, frameworks
    for name in found:
        if name.startswith("dlperf.adapters."):
            assert name.split(".")[2] in (
                "api",
                "base",
                "compression",
                "cpu",
                "dali",
                "horovod",
                "libraries",
                "opencv",
                "profiling",
                "ranks",
                "spawn",
                own,
            ), name
    besides = BESIDES.get(path.name, set())
    allowed = {*OF_ADAPTERS, *besides, "dlperf", "numpy"} | set(sys.stdlib_module_names)
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
    return next(word for word in words if word in OF_ADAPTERS)


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "models").glob("*.py"), *(ROOT / "adapters").glob("*.py")]),
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_the_shared_worker_side_needs_numpy_alone(path):
    own = {"horovod.py": {"horovod"}, "dali.py": {"nvidia"}, "opencv.py": {"cv2"}}.get(path.name, set())
    allowed = {"dlperf", "numpy", *own} | set(sys.stdlib_module_names)
    assert {name.split(".")[0] for name in imports(path)} <= allowed


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "models").glob("*.py"), *(ROOT / "adapters").rglob("*.py")]),
    ids=lambda path: "/".join(path.parts[-2:]),
)
def test_the_worker_side_does_not_import_the_core(path):
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("dlperf.")}
    assert ours <= {*WORKER_SIDE, "__version__"}


@pytest.mark.parametrize("path", sorted((ROOT / "adapters" / "oneflow").glob("*.py")), ids=lambda path: path.name)
def test_no_forward_of_oneflow_calls_super(path):
    """An nn.Graph calls it with a stand-in for the module, of which super() raises a TypeError; on CUDA nobody has run
    these lines."""
    methods = [one for one in ast.walk(ast.parse(path.read_text())) if getattr(one, "name", "") == "forward"]
    called = [ast.unparse(one.func) for method in methods for one in ast.walk(method) if isinstance(one, ast.Call)]
    assert "super" not in called

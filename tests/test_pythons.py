"""What `make test-pythons` tests is the whole tree."""

import runpy

from places import ROOT

PACKAGES = ("adapters", "dlperf", "docker", "launchers", "models", "report", "tests")


def test_the_copy_leaves_no_module_out():
    left_out = runpy.run_path(str(ROOT / "tests" / "pythons.py"))["left_out"]
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    parents = {folder for path in modules for folder in (path, *path.parents) if ROOT in folder.parents}
    assert [path for path in sorted(parents) if left_out(str(path.parent), [path.name])] == []

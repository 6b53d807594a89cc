"""Whatever stands in a comparison's folder: one message, or a report; never a traceback, nor a changed figure."""

import json
import random
import shutil

import pytest
from commands import FAKE, call
from odd import ODD, changed, fields
from places import GOLDEN

from dlperf import report, stored
from dlperf.comparison import store
from dlperf.errors import UsageError

SEED = 20261123


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small comparison that did well."""
    out = tmp_path_factory.mktemp("damaged") / "out"
    assert call("compare", *FAKE, "-r", 2, "-o", out).returncode == 0
    return out


def opened(folder):
    """The report of what is there, and its comparison; or the message."""
    try:
        found = store.open_folder(folder)
    except UsageError as error:
        return str(error), None
    return report.render(found.comparison)["report.md"], found


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["comparison.json", "records.jsonl", "proofs.json", "seconds.json", "batch_sizes.json"]
)
def test_each_field_of_each_file_in_turn(made, tmp_path, name):
    source, tried, refused = random.Random(SEED), 0, 0
    folder = shutil.copytree(made, tmp_path / "out", ignore=shutil.ignore_patterns("runs", "code", "charts"))
    path = folder / name
    whole = path.read_text() if path.exists() else '{"a": {"batch_size": 4, "found": "x"}}'
    first, *rest = whole.splitlines() if name.endswith("jsonl") else [whole]
    rates = {one.repeat: one.windows for one in store.open_folder(made).comparison.records if one.done}
    assert len(rates) == 2
    places = list(fields(json.loads(first)))
    for place in source.sample(places, min(len(places), 40)):
        for text in (None, *source.sample(ODD, 2)):
            path.write_text("\n".join([changed(json.loads(first), place, text), *rest]) + "\n")
            said, found = opened(folder)
            tried, refused = tried + 1, refused + (found is None)
            if found is None:
                assert name in said
            else:
                for one in found.comparison.records:
                    assert not one.done or name == "records.jsonl" or one.windows == rates[one.repeat]
    print(f"{name}: {tried} tried, {refused} refused")


@pytest.mark.parametrize("name", ["comparison.json", "records.jsonl", "proofs.json"])
def test_what_is_cut_or_noise(made, tmp_path, name):
    source = random.Random(SEED)
    folder = shutil.copytree(made, tmp_path / "out", ignore=shutil.ignore_patterns("runs", "code", "charts"))
    whole = (folder / name).read_bytes()
    for at in source.sample(range(len(whole)), 40):
        (folder / name).write_bytes(whole[:at])
        opened(folder)
    for length in range(0, 400, 10):
        (folder / name).write_bytes(source.randbytes(length))
        opened(folder)


def test_results_with_proofs_of_a_model_that_nobody_knows_are_refused():
    whole = json.loads((GOLDEN / "report" / "results.json").read_text())
    stored.comparison_from(whole)
    first = next(iter(whole["proofs"].values()))[0]
    first["trajectory"]["model"] = "nonsense"
    with pytest.raises(ValueError, match="'nonsense', which this dlperf does not know"):
        stored.comparison_from(whole)

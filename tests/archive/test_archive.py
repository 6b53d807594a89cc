"""Archives of comparisons: what is in them, what their check finds, who signed them."""

import json
import os
import re
import shutil
import subprocess

import pytest
from commands import FAKE, call

from dlperf import archive, report
from dlperf.archive import content, derived, pack, signature, tar
from dlperf.archive.check import check
from dlperf.comparison import store
from dlperf.errors import RunError, UsageError
from dlperf.report import gate, public
from dlperf.schema import Window

RUN = "runs/bert_tiny-fp32-fake-b4/0"
LOOKED = "proofs/bert_tiny-fp32-fake-b4-from-revealing-weights/run"


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """A small comparison that did well; two ranks of one row, and a row that failed."""
    out = tmp_path_factory.mktemp("archive") / "out"
    words = ("--set", "fake.behave=well,crash", "-r", 1, "--nproc-per-node", "1,2")
    assert call("compare", *FAKE, *words, "-o", out).returncode == 0
    return out


@pytest.fixture(scope="module")
def packed(comparison):
    """Its archive."""
    file = comparison.with_name("mine.dlperf.tar.gz")
    pack.write(pack.opened(comparison)[0], comparison, file)
    return file


@pytest.fixture
def edited(packed, tmp_path):
    """An archive with files changed, added or removed, by path; its manifest is renewed unless it is kept."""

    def edit(changes, keep=False):
        files = tar.unpacked(packed)
        manifest = files.pop(tar.MANIFEST)
        for name, change in changes.items():
            made = change(files.get(name, b"")) if callable(change) else change
            files.pop(name, None)
            files |= {} if made is None else {name: made}
        data = tar.packed("mine", files)
        if keep:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tar, "manifest", lambda files: manifest)
                data = tar.packed("mine", files)
        (tmp_path / "mine.dlperf.tar.gz").write_bytes(data)
        return tmp_path / "mine.dlperf.tar.gz"

    return edit


def replaced(old, new):
    """One text for another, which is there."""

    def change(data):
        assert old.encode() in data
        return data.replace(old.encode(), new.encode(), 1)

    return change


def results(change):
    """results.json, with the record of a run changed."""

    def edit(data):
        whole = json.loads(data)
        change(next(one for one in whole["records"] if one["folder"] == RUN))
        return json.dumps(whole).encode()

    return edit


def test_an_archive_verifies_and_is_the_same_each_time(comparison, packed, tmp_path):
    assert archive.verify(packed) == []
    said = call("archive", "verify", packed)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{packed}: verified\n", "")
    again = tmp_path / "mine.dlperf.tar.gz"
    said = call("archive", "pack", comparison, "--output", again)
    assert (said.returncode, said.stdout) == (0, f"Archive: {again} ({packed.stat().st_size:,} bytes)\n")
    assert again.read_bytes() == packed.read_bytes()


def test_it_holds_report_runs_and_code_and_no_chain(packed):
    files = tar.unpacked(packed)
    assert {"results.json", "report.md", "report.html", "results.csv", "charts/bert_tiny-fp32-cpu.svg"} <= files.keys()
    for name in ("job.json", "launch.sh", "events.rank0.jsonl", "stdout.log", "stderr.log"):
        assert f"{RUN}/{name}" in files
    for name in ("fake/adapter.toml", "fake/requirements.cpu.txt", "worker.py"):
        assert f"code/dlperf/adapters/{name}" in files
    assert "comparison.json" in files
    assert not {"records.jsonl", "last_record.json", "lock"} & files.keys()
    assert not [name for name in files if name.endswith((".npz", ".pyc"))]


def test_a_changed_byte_is_found_and_its_file_named(edited):
    for name in ("results.json", "report.md", f"{RUN}/stdout.log", "code/dlperf/adapters/worker.py"):
        path = edited({name: lambda data: data[:-1] + b"!"}, keep=True)
        for render in (True, False):
            assert f"{name} is not as MANIFEST.sha256 has it." in archive.verify(path, render)
    said = call("archive", "verify", path)
    assert said.returncode == 1
    assert said.stdout.endswith("NOT VERIFIED\n")


def test_files_that_are_missing_or_too_many_are_named(edited):
    path = edited({"report.md": None, "more": b"a"}, keep=True)
    assert {"report.md is missing.", "more is not in MANIFEST.sha256."} <= set(archive.verify(path, render=False))
    path = edited({"report.md": None, "more.html": b"a"})
    assert archive.verify(path, render=False) == []
    assert archive.verify(path) == [
        "more.html is no part of the report that results.json gives.",
        "report.md of the report is missing.",
    ]


SAME = {"verdict": "same", "steps": 8}


def faster(record):
    record["windows"][1]["seconds"] /= 2


def calmer(record):
    record["windows"][0]["conditions"] = {}


def shorter(record):
    del record["windows"][2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (faster, "seconds of window 1 is "),
        (calmer, "conditions of window 0 is {} in results.json"),
        (shorter, "it has 2 windows in results.json, and 3 in its events."),
        (lambda record: record["windows"][0].update(samples=9), "samples of window 0 is 9 in results.json, and 8 in "),
        (lambda record: record.update(command="rm"), "its command in results.json is not launch.sh."),
        (lambda record: record["versions"].update(numpy="9"), "numpy in versions is 9 in results.json, and "),
        (lambda record: record["effective"].update(precision="x"), "precision in effective is x in results.json, and "),
        (lambda record: record.update(peak_memory_bytes=1), "peak_memory_bytes is 1 in results.json, and "),
        (lambda record: record.update(parameter_count=1), "parameter_count is 1 in results.json, and "),
        (lambda record: record.update(first_step_seconds=1e-9), "first_step_seconds is 1e-09 in results.json, and "),
        (lambda record: record["stages"].update(build=0), "build in stages is 0 in results.json, and "),
        (
            lambda record: record["work"].update(SAME, audited=9),
            "audited is 9 in results.json, and missing in its events.",
        ),
        (
            lambda record: record["work"].update(SAME, revealed=9),
            "results.json has it looked at from revealing weights, and ",
        ),
        (
            lambda record: record["work"].update(SAME, placed=True),
            "results.json has the places of its dropout looked at, and ",
        ),
        (lambda record: record.update(started="2020-01-01T00:00:00+00:00"), "it started 2020-01-01T00:00:00+00:00 in "),
    ],
)
def test_a_figure_that_its_events_do_not_give_is_found(edited, change, says):
    """Also where the manifest was made again, and without rendering."""
    found = archive.verify(edited({"results.json": results(change)}), render=False)
    assert len(found) == 1
    assert found[0].startswith(f"{RUN}: {says}")


def everywhere(change):
    """results.json, with a row changed wherever it stands."""

    def edit(data):
        whole = json.loads(data)
        for job in (*whole["jobs"], *(record["job"] for record in whole["records"])):
            change(job)
        return json.dumps(whole).encode()

    return edit


def fields(**more):
    return lambda data: json.dumps({**json.loads(data), **more}).encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (everywhere(lambda job: job.update(batch_size=8)), f"{RUN}: batch_size is 8 in results.json, and 4 in its job"),
        (
            everywhere(lambda job: job.update(precision="fp64")),
            f"{RUN}: precision is fp64 in results.json, and fp32 in ",
        ),
        (everywhere(lambda job: job["options"].update(behave="x")), f"{RUN}: options is "),
        (
            lambda data: data.replace(b'"repeats": 1', b'"repeats": 3'),
            "repeats in protocol in spec is 3 in results.json",
        ),
        (
            lambda data: data.replace(b'"seed": 1,', b'"seed": 2,'),
            f"{RUN}: seed is 2 in results.json, and 1 in its job.",
        ),
        (fields(revision="1234567"), "revision is 1234567 in results.json, and "),
        (fields(created="2020"), "created is 2020 in results.json, and "),
        (fields(planned=1), "planned is 1 in results.json, and 4 in comparison.json."),
        (fields(machine={"cpu": "x", "load_average": [0.0]}), "cpu in machine is x in results.json, and "),
        (fields(unmet=[]), "results.json does not say what it gives: few steps were timed, and few runs made."),
        (
            lambda data: results(lambda record: record.update(job={**record["job"], "title": "x"}))(data),
            f"{RUN}: its row is",
        ),
    ],
)
def test_what_the_request_and_the_start_have_otherwise_is_found(edited, change, says):
    found = archive.verify(edited({"results.json": change}), render=False)
    assert any(one.startswith(says) for one in found), found


def test_a_run_that_was_taken_out_everywhere_is_missing(edited):
    def less(data):
        whole = json.loads(data)
        whole["records"] = [one for one in whole["records"] if one["folder"] != RUN]
        return json.dumps(whole).encode()

    names = ("job.json", "launch.sh", "events.rank0.jsonl", "stdout.log", "stderr.log")
    gone = edited({"results.json": less, **{f"{RUN}/{name}": None for name in names}})
    says = f"results.json does not say what it gives: {gate.CONDITIONS['failures']}."
    assert says in archive.verify(gone, render=False)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("code/dlperf/adapters/fake/more.txt", "code/dlperf/adapters/fake/more.txt is not in code/files.json."),
        ("code/more", "code/more is not in code/files.json."),
        (f"{RUN}/more.txt", f"{RUN}: more.txt is no file of a run."),
        ("proofs/more/run/job.json", "proofs/more/run is of no row of results.json."),
        (f"{LOOKED}/more", f"{LOOKED}: more is no file of a run."),
    ],
)
def test_files_that_no_list_has_are_named(edited, name, says):
    assert archive.verify(edited({name: b"{}"}), render=False) == [says]


def test_without_what_was_stored_at_the_start_it_says_so(edited):
    found = check(edited({"comparison.json": None}), render=False)
    assert (found.problems, found.uncompared) == ((), ())
    assert found.notes[0].startswith("It has no comparison.json, as those that older dlperf packed: ")
    (found,) = archive.verify(edited({"code/files.json": None}), render=False)
    assert found == "code/files.json is missing."
    (found,) = archive.verify(edited({"comparison.json": b"{}"}), render=False)
    assert found.startswith("comparison.json is not what dlperf wrote (")


def test_a_failed_run_with_figures_is_found(edited):
    def healed(data):
        whole = json.loads(data)
        good = next(one for one in whole["records"] if one["folder"] == RUN)
        for record in whole["records"]:
            if record["failure"]:
                record.update(windows=good["windows"], failure=None)
        return json.dumps(whole).encode()

    found = archive.verify(edited({"results.json": healed}), render=False)
    assert len(found) == 2
    assert all("results.json has figures of it, but by its events it failed" in one for one in found)


def test_runs_that_are_left_out_told_twice_or_without_events_are_found(edited):
    def less(data):
        whole = json.loads(data)
        whole["records"] = [one for one in whole["records"] if one["folder"] != RUN]
        return json.dumps(whole).encode()

    def twice(data):
        whole = json.loads(data)
        whole["records"] += [one for one in whole["records"] if one["folder"] == RUN]
        return json.dumps(whole).encode()

    found = archive.verify(edited({"results.json": less}), False)
    assert found[0] == f"{RUN} is of a run that results.json lacks."
    assert archive.verify(edited({"results.json": twice}), False) == [f"results.json has the run {RUN} twice."]
    assert archive.verify(edited({f"{RUN}/events.rank0.jsonl": None}), False) == [
        f"{RUN}: it has the events of 0 of 1 ranks."
    ]
    changed = edited({f"{RUN}/events.rank0.jsonl": replaced('"samples": 8', '"samples": 80')})
    assert archive.verify(changed, False) == [f"{RUN}: samples of window 0 is 8 in results.json, and 80 in its events."]


def test_other_code_than_ran_is_found(edited):
    for name in ("adapters/fake/bert.py", "adapters/worker.py", "models/bert.py"):
        path = edited({f"code/dlperf/{name}": lambda data: data + b"\n"})
        says = "code/dlperf/adapters/fake with what is shared is not the code of which results.json has the digest."
        listed = f"code/dlperf/{name} is not as code/files.json has it."
        assert archive.verify(path, render=False) == [says, listed]
    without = {f"code/dlperf/adapters/fake/{name}.py": None for name in ("bert", "resnet", "profiling")}
    assert archive.verify(edited(without), render=False)[0] == says


def test_a_name_that_no_file_can_have_is_only_a_name(edited):
    assert archive.verify(edited({f"{RUN}/events.{'x' * 999}.jsonl": b""}), render=False) == []


def test_a_report_that_results_do_not_give_is_found(edited):
    for name in ("report.md", "report.html", "results.csv"):
        assert archive.verify(edited({name: lambda data: data + b" "})) == [f"{name} is not what results.json gives."]
    drawn = edited({"charts/bert_tiny-fp32-cpu.svg": lambda data: data.replace(b"<svg ", b"<svg  ")})
    assert archive.verify(drawn) == ["charts/bert_tiny-fp32-cpu.svg is not what results.json gives."]


def test_charts_of_another_matplotlib_are_not_compared_and_all_else_is(edited):
    own = content.here()["matplotlib"]
    other = {"packed.json": replaced(own, "3.0.0")}
    redrawn = {name: lambda data: data.replace(b"<path", b"<path ") for name in ("report.html",)}
    found = check(edited({**other, **redrawn}))
    assert found.problems == ()
    assert found.notes == (f"The charts were not compared: matplotlib 3.0.0 drew them, and here is {own}.",)
    found = check(edited({**other, "report.html": replaced("<h2", "<h3")}))
    assert found.problems == ("report.html is not what results.json gives.",)


def test_a_report_of_another_dlperf_is_not_compared(edited):
    other = {"packed.json": replaced(content.here()["revision"], "1234567")}
    assert archive.verify(edited(other)) == []
    file = edited({**other, "report.md": b"x"})
    found = check(file)
    assert found.problems == ()
    (told,) = found.uncompared
    assert told.startswith("The report was not compared: dlperf 1234567 rendered the report, and this is ")
    assert told.endswith(": report.md is not what results.json gives.")
    said = call("archive", "verify", file, file)
    assert (said.returncode, said.stdout.splitlines()[1::2]) == (3, [f"{file}: verified in part"] * 2)
    found = check(edited({**other, "report.md": b"x", "results.csv": replaced(",4,", ",8,")}))
    assert "is not what results.json gives." in found.problems[0]
    found = check(edited({**other, "results.csv": b"a,b\n"}))
    assert found.problems == ("results.csv has not the rows of results.json.",)


def test_sections_that_are_new_since_are_no_other_report(comparison, edited):
    whole = store.results(tar.unpacked(edited({}))["results.json"], "")
    older = {name: text.encode() for name, text in report.render(whole, audited=False).items()}
    assert b"## Audit" not in older["report.md"]
    found = check(edited({"packed.json": replaced(content.here()["revision"], "1234567"), **older}))
    assert (found.problems, found.uncompared) == ((), ())
    assert found.notes[0].endswith("which adds what its audit finds; all else is the same.")


@pytest.mark.parametrize("name", ["results.json", "packed.json"])
@pytest.mark.parametrize("data", [None, b"", b"[]", b"{}", b'{"schema": 2}', b"[" * 10**5, b"\xff"])
def test_what_is_not_as_dlperf_writes_it_is_a_problem(edited, name, data):
    found = archive.verify(edited({name: data}))
    assert len(found) == 1
    assert found[0].startswith(f"{name}")


def test_no_report_is_rendered_unless_asked_for(packed, monkeypatch):
    monkeypatch.setattr(report, "render", lambda comparison: 1 / 0)
    assert archive.verify(packed, render=False) == []
    assert archive.verify(packed) == ["results.json cannot be rendered: ZeroDivisionError: division by zero."]


def test_an_archive_is_no_other_file(tmp_path):
    (tmp_path / "x").write_text("x")
    said = call("archive", "verify", tmp_path / "x")
    assert said.returncode == 1
    assert said.stdout.startswith("it is no archive of dlperf's, or is damaged (")
    said = call("archive", "verify", tmp_path / "nowhere")
    assert (said.returncode, said.stderr) == (2, f"FILE {tmp_path}/nowhere: there is no such file.\n")


def test_a_condition_that_came_later_may_be_missing_and_may_not_be_another():
    of_both = {"cpu_others_share": 0.1, "cpu_busy_share": 0.5}
    made, older, other, less = (
        Window(0, 1, 8, 2.0, 1.0, 1.0, conditions=one)
        for one in (of_both, {"cpu_others_share": 0.1}, {**of_both, "cpu_busy_share": 0.4}, {"cpu_busy_share": 0.5})
    )
    assert not list(derived._windows((older,), (made,)))
    assert "cpu_busy_share" in next(derived._windows((other,), (made,)))
    assert "cpu_others_share" in next(derived._windows((less,), (made,)))


# What goes into one


def test_what_runs_left_names_no_host_user_or_folder(comparison, tmp_path, monkeypatch):
    """Also in JSON, where a path may be escaped; what events are read by is as it was, whatever the host is called."""
    monkeypatch.setattr(public, "_user", lambda: "ann")
    monkeypatch.setattr("socket.gethostname", lambda: "window")
    folder = tmp_path / "für ann" / "out"
    shutil.copytree(comparison, folder)
    events, job = folder / RUN / "events.rank0.jsonl", folder / RUN / "job.json"
    told = f"{folder}/x on window by /scratch/ann/y"
    events.write_text(events.read_text() + json.dumps({"event": "note", "said": told}) + f'\n{{"half: "{told}')
    job.write_text(json.dumps({**json.loads(job.read_text()), "said": told}))
    (folder / RUN / "stdout.log").write_bytes(told.encode() + b" \xff\r\n")
    file = tmp_path / "x.dlperf.tar.gz"
    pack.write(pack.opened(folder)[0], folder, file)
    assert archive.verify(file) == []
    files, shown = tar.unpacked(file), "<comparison>/x on host2 by /scratch/<user>/y"
    assert files[f"{RUN}/stdout.log"] == shown.encode() + b" \xff\r\n"
    assert json.loads(files[f"{RUN}/job.json"])["said"] == shown
    *_, note, half = files[f"{RUN}/events.rank0.jsonl"].decode().splitlines()
    assert json.loads(note)["said"] == shown
    assert half == f'{{"half: "{shown}'
    for name, data in files.items():
        if not name.startswith("code/"):
            assert not re.search(rb"f.{1,6}r ann|\\u00fcr|/ann/", data), name


def test_what_a_link_leads_to_is_not_packed(comparison, tmp_path):
    folder = shutil.copytree(comparison, tmp_path / "out")
    (tmp_path / "secret.log").write_text("secret")
    (folder / RUN / "secret.log").symlink_to(tmp_path / "secret.log")
    (folder / "proofs" / "x").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stdout.log").write_text("secret")
    (folder / "proofs" / "x" / "run").symlink_to(tmp_path / "run")
    pack.write(pack.opened(folder)[0], folder, tmp_path / "x.dlperf.tar.gz")
    assert not [name for name, data in tar.unpacked(tmp_path / "x.dlperf.tar.gz").items() if data == b"secret"]


def test_a_comparison_that_makes_no_archive_is_one_message(comparison, packed, tmp_path, monkeypatch):
    out = tmp_path / "x.dlperf.tar.gz"
    for words, says in (
        ([tmp_path], "this is no folder with comparison.json"),
        ([comparison, "-o", packed], "this is there already"),
        ([comparison, "-o", tmp_path / "x.tar.gz"], "ends in .dlperf.tar.gz"),
        ([comparison, "-o", tmp_path / ".dlperf.tar.gz"], "ends in .dlperf.tar.gz"),
        ([comparison, "-o", tmp_path / "a b.dlperf.tar.gz"], "a name of letters, digits and"),
    ):
        said = call("archive", "pack", *words)
        assert (said.returncode, said.stdout) == (2, "")
        assert says in said.stderr
        assert len(said.stderr.splitlines()) == 1
    assert call("archive", "pack", comparison, "-o", tmp_path / "nowhere" / out.name).returncode == 1
    monkeypatch.setattr(content, "LARGEST", 10_000)
    with pytest.raises(UsageError, match=r"it has .* bytes, and a file of an archive at most 10,000"):
        pack.write(pack.opened(comparison)[0], comparison, out)
    assert not list(tmp_path.iterdir())


def test_code_that_names_the_user_is_not_packed(comparison, tmp_path):
    folder = shutil.copytree(comparison, tmp_path / "out")
    with open(folder / "code" / "dlperf" / "adapters" / "fake" / "bert.py", "a") as file:
        file.write("# /home/ann/x\n")
    with pytest.raises(UsageError, match=r"fake/bert.py: this code names the user or a folder of this machine"):
        pack.write(pack.opened(folder)[0], folder, tmp_path / "x.dlperf.tar.gz")


def test_what_would_not_verify_is_not_written(comparison, tmp_path):
    folder = shutil.copytree(comparison, tmp_path / "out")
    (folder / RUN / "events.rank0.jsonl").unlink()
    with pytest.raises(RunError, match="makes no archive that verifies") as refused:
        pack.write(pack.opened(folder)[0], folder, tmp_path / "x.dlperf.tar.gz")
    assert refused.value.lines == (f"{RUN}: it has the events of 0 of 1 ranks.",)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# Signatures


@pytest.fixture
def key(tmp_path):
    """A key, and a file by which Ann may sign with it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    public_half = (tmp_path / "key.pub").read_text()
    (tmp_path / "signers").write_text(f'ann@example.org namespaces="{signature.NAMESPACE}" {public_half}')
    return tmp_path / "key"


def test_a_signature_is_made_and_checked(packed, key, tmp_path):
    file = shutil.copy(packed, tmp_path / packed.name)
    said = call("archive", "sign", file, "-k", key)
    assert (said.returncode, said.stdout) == (0, f"Signature: {file}.sig\n")
    signed = (tmp_path / f"{packed.name}.sig").read_bytes()
    said = call("archive", "sign", file, "-k", key)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == f"FILE {file}.sig: it has a signature already. Remove that first, or keep it elsewhere.\n"
    assert (tmp_path / f"{packed.name}.sig").read_bytes() == signed
    by = ("--allowed-signers", tmp_path / "signers", "--identity")
    said = call("archive", "verify", file, *by, "ann@example.org")
    assert (said.returncode, said.stdout) == (0, f"{file}: verified, signed by ann@example.org\n")
    said = call("archive", "verify", file, *by, "bob@example.org")
    assert said.returncode == 1
    assert "is no signature of it by bob@example.org: " in said.stdout
    assert f"{file}.sig was not looked at" in call("archive", "verify", file).stdout
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"\x01")
    assert call("archive", "verify", file, *by, "ann@example.org").returncode == 1
    file.write_bytes(whole)
    (tmp_path / f"{packed.name}.sig").unlink()
    said = call("archive", "verify", file, *by, "ann@example.org")
    assert said.returncode == 1
    assert f"There is no signature: {file}.sig is missing." in said.stdout


def test_a_wrong_request_about_signatures_is_one_message(packed, key, tmp_path, monkeypatch):
    for words, says in (
        (("verify", packed, "--identity", "ann"), "--allowed-signers: a signature is checked with both flags"),
        (("verify", packed, "--allowed-signers", key), "--identity: a signature is checked with both flags"),
        (("sign", packed, "-k", tmp_path / "nowhere"), "--key "),
        (("sign", tmp_path / "nowhere", "-k", key), "FILE "),
    ):
        said = call("archive", *words)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith(says)
    file = shutil.copy(packed, tmp_path / packed.name)
    said = call("archive", "sign", file, "-k", tmp_path / "signers")  # no key
    assert said.returncode == 1
    assert "could not be signed" in said.stderr
    said = call("archive", "sign", file, "-k", key, PATH=os.devnull)
    assert said.returncode == 1
    assert said.stderr == (
        "ssh-keygen was not found, which makes and checks signatures. Install OpenSSH's client, 8.2 or newer.\n"
    )
    assert not (tmp_path / f"{packed.name}.sig").exists()

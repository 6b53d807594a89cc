"""What people see while something runs: the time left, where a run is, and what to do about a slow row."""

import dataclasses
import json

import places
import pytest
from commands import FAKE, call

from dlperf.comparison import progress as progress_
from dlperf.comparison.progress import Display, Lines, Progress, choose, duration, position
from dlperf.figures import rates
from dlperf.planning.spec import Protocol, Spec
from dlperf.runs import events
from dlperf.runs.events import Stream
from dlperf.schema import Failure, Job, Record

GOLDEN = places.GOLDEN / "progress.txt"
QUICK = Protocol("quick", 2, 3, 2, 3)
SPEC = Spec(("bert_base",), ("amp",), ("jax", "pytorch"), "cpu", "venv", QUICK)
JOB = Job("slow", "slow", "fake", "Fake", "bert_tiny", "bert", "cpu", "fp32", "fp32", 4, "synthetic", None, {}, "cpu")
FAST = dataclasses.replace(JOB, id="fast")
BERT = dataclasses.replace(JOB, id="t", system="pytorch", adapter="pytorch", model="bert_base", precision_asked="amp")
OTHERS = [dataclasses.replace(BERT, id=name, system=name, adapter=name) for name in ("jax", "mxnet", "tensorflow")]


def ended(job, seconds):
    return Record(job, 0, "", seconds, "", "", {})


class Clock:
    """Stands still until it is told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Run:
    """A run whose events come when a test says so. A real one's `tick` is called once a second."""

    def __init__(self, folder, shown, clock, job=BERT, repeat=0):
        self.folder, self.shown, self.clock = folder, shown, clock
        self.file = folder / "events.rank0.jsonl"
        self.file.write_text("")
        shown.started(job, repeat)

    def after(self, seconds, event=None, /, **fields):
        """Time passes; then the worker writes an event."""
        for _ in range(seconds):
            self.clock.now += 1
            self.shown.tick(self.folder)
        if event == "warm":
            fields = {"seconds": 1.0, "first_step_seconds": 0.5, **fields}
        if event:
            with self.file.open("a") as file:
                file.write(json.dumps({"event": event, "time": self.clock.now, **fields}) + "\n")
        return self

    def window(self, seconds, index, steps=2):
        fields = {"index": index, "steps": steps, "samples": 4 * steps, "seconds": seconds, "loss": 1.0}
        return self.after(seconds, "window", cpu_seconds=1.0, **fields)

    @property
    def where(self):
        return position(events.read(self.file), QUICK, 1000.0, self.clock.now)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run(tmp_path, clock):
    """A run of PyTorch's that is expected to take 40 s, as each of the three others after it."""
    shown = Lines(clock)
    shown.begin([BERT, *OTHERS], SPEC, dict.fromkeys(["t", "jax", "mxnet", "tensorflow"], 40.0))
    return Run(tmp_path, shown, clock)


# --- the time left ----------------------------------------------------------------------------------------------------


def test_each_job_counts_with_its_own_time():
    progress = Progress()
    progress.begin([JOB, FAST, JOB, FAST, FAST])
    assert progress.left() == ""
    progress.finished(ended(JOB, 100.0))
    assert progress.left() == "about 6 min 40 s left", "four runs, as long as the only one so far"
    progress.finished(ended(FAST, 10.0))
    assert progress.left() == "about 2 min 00 s left", "one slow run and two fast ones"
    progress.passed(JOB)
    assert progress.left() == "about 20 s left"


def test_texts_are_counted_by_their_tokens(run):
    run.after(10, "start").after(0, "built").after(20, "first_step", seconds=20.0).after(5, "second_step", seconds=5.0)
    run.shown._job = dataclasses.replace(run.shown._job, model="gpt2_512", family="gpt")
    assert run.shown._look(run.folder) == f"{512 * BERT.global_batch_size / 5:g} tokens/s"


def test_rows_without_a_run_count_as_the_plan_expects_corrected_by_those_that_ran():
    shown = Progress()
    shown.begin([JOB, FAST, FAST], SPEC, {"slow": 40.0, "fast": 10.0})
    assert shown.left() == "about 1 min 00 s left"
    shown.finished(ended(JOB, 80.0))
    assert shown.left() == "about 40 s left", "this machine takes twice what was expected"


def test_a_slow_row_counts_for_those_without_a_run():
    shown, rows = Progress(), [BERT, *OTHERS]
    shown.begin(rows, SPEC, {one.id: 40.0 for one in rows})
    for one, seconds in zip(rows, (40.0, 40.0, 160.0), strict=False):
        shown.finished(ended(one, seconds))
    assert shown.left() == "about 1 min 20 s left", "all took twice what was expected of them together"


def test_a_run_that_outlasts_what_was_expected_leaves_its_end_open(run):
    run.after(39, "start")
    assert run.shown.left() == "about 2 min 01 s left"
    run.after(2)
    assert run.shown.left() == "more than 2 min 00 s left", "nobody knows how long its first step will take"
    run.shown.begin([BERT], SPEC, {"t": 40.0})
    assert run.shown.left() == ""


def test_a_run_at_work_tells_its_own_time_from_the_second_step_on(run):
    run.after(10, "start").after(0, "built").after(20, "first_step", seconds=20.0)
    assert run.where.left is None, "the first step compiled"
    run.after(5, "second_step", seconds=5.0)
    assert (run.where.pace, run.where.left) == (5.0, 30.0)
    run.shown._look(run.folder)
    assert run.shown.left() == "about 2 min 30 s left", "30 s of this run, and three others as the plan expects"
    run.shown.begin([BERT, BERT], SPEC)
    assert run.shown.left() == "about 1 min 35 s left", "and another one like this, of 65 s"


# --- where a run is ---------------------------------------------------------------------------------------------------


def test_steps_that_the_worker_chose_by_time_are_those_that_are_told(run):
    run.after(3, "start").after(5, "built").after(2, "first_step", seconds=2.0).after(1, "second_step", seconds=1.0)
    run.after(9, "warm", steps=30, steps_per_window=40, seconds=12.0, first_step_seconds=2.0, loss=1.0)
    assert run.where.stage == "window 1 of 3, step 31 of 150"
    run.window(20, 0, steps=40)
    assert run.where.stage == "window 2 of 3, step 71 of 150"


def test_between_events_the_step_is_an_estimate_and_says_so(run):
    assert run.where.stage == "starting"
    assert run.after(3, "start").where.stage == "importing and building"
    assert run.after(3, "built").where.stage == "in its first step, which may compile"
    assert run.after(9, "first_step", seconds=9.0).where.stage == "warming up, step 2 of 8"
    assert run.after(4, "second_step", seconds=4.0).after(0, "warm").where.stage == "window 1 of 3, step 3 of 8"
    assert run.after(5).where.stage == "window 1 of 3, about step 4 of 8"
    assert run.after(50).where.stage == "window 1 of 3, about step 4 of 8", "the next event has not come"
    assert run.window(8, 0).where.stage == "window 2 of 3, step 5 of 8"
    assert run.window(8, 1).window(8, 2).where.stage == "ending"
    assert run.where.left == 0.0


def test_a_damaged_event_file_is_a_run_that_starts(run):
    run.file.write_bytes(b'\xff\n[]\n{"event": "first_step", "time": 1}\n{"event": "second_step", "seconds": "x"}\n')
    assert run.where.stage == "starting"
    run.shown._look(run.folder)


def test_durations():
    assert [duration(seconds) for seconds in (0.4, 59.4, 125, 3599.6)] == ["0 s", "59 s", "2 min 05 s", "1 h 00 min"]


# --- never silent -----------------------------------------------------------------------------------------------------


def test_a_line_at_least_every_30_seconds_from_the_start_on(run, capsys, request):
    run.after(70, "start").after(40, "built").after(61, "first_step", seconds=61.0).after(
        20, "second_step", seconds=20.0
    )
    run.after(0, "warm")
    for index in range(3):
        run.window(40, index)
    text = capsys.readouterr().out
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_the_longest_silence_is_30_seconds(tmp_path, clock, capsys):
    shown, spoken = Lines(clock), []
    shown.begin([BERT], SPEC)
    run = Run(tmp_path, shown, clock)
    for _ in range(200):
        run.after(1)
        spoken += [clock.now] if capsys.readouterr().out else []
    assert max(b - a for a, b in zip([1000.0, *spoken], spoken, strict=False)) <= 30


def test_without_a_terminal_events_are_read_every_ten_seconds_at_most(run, monkeypatch):
    reads = []
    monkeypatch.setattr(events, "read", lambda path: reads.append(path) or Stream())
    run.after(100)
    assert 3 <= len(reads) <= 14


def test_work_that_is_no_run_is_told_as_often(clock, capsys):
    shown = Lines(clock)
    for _ in range(100):
        clock.now += 1
        shown.busy(lambda: "proofs at work")
    assert capsys.readouterr().out.splitlines() == ["proofs at work"] * 3


def test_a_script_that_is_not_ours_shows_its_time(tmp_path, clock, capsys):
    shown, script = Lines(clock), dataclasses.replace(BERT, kind="upstream")
    shown.begin([script], SPEC)
    Run(tmp_path, shown, clock, script).after(31)
    expected = "[1/1] bert_base amp pytorch, run 1: its script is running; 29 s so far\n"
    assert capsys.readouterr().out == expected


def test_quiet_says_nothing(capsys, tmp_path, clock):
    progress = choose(quiet=True)
    progress.begin([JOB])
    progress.note("something")
    progress.busy(lambda: "something")
    Run(tmp_path, progress, clock, JOB).after(100)
    progress.finished(ended(JOB, 1.0))
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_command_speaks_while_a_run_is_at_work(tmp_path, monkeypatch):
    """The whole command without a terminal, with a second in place of 30."""
    monkeypatch.setattr(progress_, "EVERY", 1.0)
    done = call("compare", *FAKE, "-r", 1, "--set", "step_seconds=0.6", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "1 row, 1 repeat each" in done.stdout.partition("[1/1]")[0], "what it expects comes first"
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.startswith("[1/1] bert_tiny fp32 fake step_seconds=0.6, run 1: ")
    ]
    told = [line for line in lines if " of 8; " in line and " sentences/s; " in line and " so far; about " in line]
    assert told, lines
    stream = events.read(next(tmp_path.glob("out/runs/*/0/events.rank0.jsonl")))
    assert min(stream.first_step, stream.second_step) >= 0.6, "both are waited for"
    assert stream.written == stream.end["time"]


# --- a row that takes too long ----------------------------------------------------------------------------------------


def told(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if "times its share" in line]


def test_a_step_of_110_s_is_told_before_the_second_has_ended(run, capsys):
    """PyTorch's bfloat16 on a CPU without AVX-512."""
    run.after(8, "start").after(0, "built").after(110, "first_step", seconds=110.0)
    assert not told(capsys), "it may have compiled"
    run.after(60)
    (line,) = told(capsys)
    assert line == (
        "bert_base amp pytorch: the first step took 1 min 50 s; a run of 8 steps will take at least 8 min 30 s, "
        "13 times its share. To go on without it: --frameworks jax,mxnet,tensorflow; "
        "shorter: --warmup-steps 1 --windows 1 --steps-per-window 1; or set --timeout."
    )
    run.after(50, "second_step", seconds=110.0).after(0, "warm").after(100)
    assert not told(capsys), "once"


def test_a_short_step_is_told_in_parts_of_a_second(run, capsys):
    run.after(600, "start").after(0, "built").after(0, "first_step", seconds=0.2)
    run.after(0, "second_step", seconds=0.2).after(0, "warm").after(60)
    assert "the first step took 0.2 s; a run of 8 steps" in told(capsys)[0]


def test_the_time_limit_is_named_where_it_will_be_reached(run, capsys):
    run.shown._spec = dataclasses.replace(SPEC, timeout=600.0)
    run.after(8, "start").after(0, "built").after(110, "first_step", seconds=110.0)
    run.after(60)
    assert "--timeout 600" not in told(capsys)[0], "half a step: it may end in time"
    run.after(50, "second_step", seconds=110.0).after(0, "warm")
    run.shown._told.clear()
    run.after(10)
    (line,) = told(capsys)
    assert "will take about 14 min 48 s, 22 times its share. It will not end within --timeout 600." in line


@pytest.mark.parametrize("compiling", [10, 60, 300])
def test_compiling_is_not_slowness(run, capsys, compiling):
    run.after(8, "start").after(0, "built").after(compiling, "first_step", seconds=float(compiling))
    run.after(2, "second_step", seconds=2.0).after(0, "warm")
    for index in range(3):
        run.window(4, index)
    assert not told(capsys)


def test_with_one_step_of_warm_up_the_first_window_tells(tmp_path, clock, capsys):
    shown = Lines(clock)
    shown.begin([BERT], dataclasses.replace(SPEC, protocol=Protocol("quick", 1, 2, 1, 1)), {"t": 20.0})
    run = Run(tmp_path, shown, clock).after(0, "start").after(0, "built").after(100, "first_step", seconds=100.0)
    run.after(0, "warm").after(60)
    (line,) = told(capsys)
    assert "a run of 3 steps will take at least 3 min" in line
    assert "--frameworks" not in line, "there is no other row"


def test_the_share_is_the_plans_or_that_of_the_other_rows_whichever_is_more():
    shown = Progress()
    shown.begin([BERT, *OTHERS, JOB], SPEC, {"t": 40.0})
    assert shown.share(BERT) == 40.0
    shown.finished(ended(JOB, 900.0))
    assert shown.share(BERT) == 40.0, "another model tells nothing"
    for job, seconds in zip(OTHERS, (50.0, 100.0, 1000.0), strict=True):
        shown.finished(ended(job, seconds))
    assert shown.share(BERT) == 100.0
    assert shown.share(OTHERS[2]) == 75.0, "of others"


def test_a_run_that_failed_tells_nothing_unless_it_took_all_its_time():
    shown = Progress()
    shown.begin([BERT, *OTHERS], SPEC)
    shown.finished(dataclasses.replace(ended(OTHERS[0], 3.0), failure=Failure("crash", "")))
    assert shown.share(BERT) is None
    shown.finished(dataclasses.replace(ended(OTHERS[1], 600.0), failure=Failure("timeout", "")))
    assert shown.share(BERT) == 600.0


def test_a_machine_that_is_slower_than_expected_makes_no_row_slow():
    shown = Progress()
    shown.begin([BERT, JOB, FAST], SPEC, {"t": 40.0, "slow": 10.0, "fast": 10.0})
    shown.finished(ended(JOB, 40.0))
    assert shown.share(BERT) == 160.0, "the other row took four times what was expected"
    shown.finished(ended(FAST, 1.0))
    shown.finished(ended(FAST, 1.0))
    assert shown.share(BERT) == pytest.approx(82.0), "median of 4 and 0.1"
    assert shown.share(JOB) == 10.0, "faster than expected makes no row slow, either"


def test_nothing_is_told_where_no_share_is_known(tmp_path, clock, capsys):
    shown = Lines(clock)
    shown.begin([BERT], SPEC)
    Run(tmp_path, shown, clock).after(0, "start").after(110, "first_step", seconds=110.0).after(300)
    assert not told(capsys)


# --- a terminal -------------------------------------------------------------------------------------------------------


def test_the_bar_shows_the_step_and_the_time_left(run, clock, monkeypatch):
    drawn = []
    display = Display(clock)
    display.close()
    monkeypatch.setattr(display, "_draw", drawn.append)
    display.begin([BERT, *OTHERS], SPEC, dict.fromkeys(["t", "jax", "mxnet", "tensorflow"], 40.0))
    shown = Run(run.folder, display, clock)
    shown.after(5, "start").after(0, "built").after(5, "first_step", seconds=5.0).after(5, "second_step", seconds=5.0)
    shown.after(1)
    assert drawn[0] == "[1/4] bert_base amp pytorch, run 1: starting; 0 s so far; about 2 min 40 s left"
    assert drawn[-1].startswith("[1/4] bert_base amp pytorch, run 1: warming up, step 3 of 8; 0.8 sentences/s; ")


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0.2, "0.2"), (9.8349, "9.835"), (2.0, "2"), (1234.56, "1,235"), (44161.2, "44,161"), (1e9, "1,000,000,000"),
     (0.0, "0"), (float("inf"), "inf")],
)  # fmt: skip
def test_a_rate_has_four_digits_and_no_exponent(rate, shown):
    assert rates.shown(rate) == shown

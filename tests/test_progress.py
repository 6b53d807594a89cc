"""The time left that people see."""

import dataclasses

from dlperf.progress import Progress, choose
from dlperf.schema import Job, Record

JOB = Job("slow", "slow", "fake", "Fake", "bert_tiny", "bert", "cpu", "fp32", "fp32", 4, "synthetic", None, {}, "cpu")
FAST = dataclasses.replace(JOB, id="fast")


def ended(job, seconds):
    return Record(job, 0, "", seconds, "", "", {})


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


def test_quiet_says_nothing(capsys):
    progress = choose(quiet=True)
    progress.begin([JOB])
    progress.note("something")
    progress.finished(ended(JOB, 1.0))
    assert capsys.readouterr().out == ""

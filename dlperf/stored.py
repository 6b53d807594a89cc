"""What was stored, read back: the inverse of `schema.to_json`, of older comparisons too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlperf.kind import KINDS
from dlperf.schema import (
    Bound,
    Certificate,
    Comparison,
    Difference,
    Failure,
    Job,
    Record,
    Skip,
    Trajectory,
    Window,
    no_rate,
)


def job_from(data: Mapping[str, Any]) -> Job:
    """The inverse of to_json for a Job; errors as in record_from."""
    fields = {"environment": data["device"], **_kind_of(data, "about")}  # older comparisons do not name it
    if "image" not in data and fields["environment"] == fields["about"].get("image"):
        fields |= {"image": fields["environment"], "environment": data["device"]}  # they had one field for both
    return Job(**fields)


def _kind_of(data: Mapping[str, Any], *kept: str) -> dict[str, Any]:
    """The fields of a job or a skip with its kind, which older comparisons tell by what they say of a script."""
    fields = dict(data)
    told = fields.pop("upstream", {})
    fields = {"kind": "upstream" if told else "native", **dict.fromkeys(kept, told), **fields}
    if fields["kind"] not in KINDS:
        raise ValueError(f"kind is {fields['kind']!r}, not one of {', '.join(KINDS)}")
    return fields


def skip_from(data: Mapping[str, Any]) -> Skip:
    """The inverse of to_json for a Skip; errors as in record_from."""
    status = "unavailable" if data["status"] == "upstream" else data["status"]  # as older comparisons call it
    return Skip(**{**_kind_of(data), "status": status})


def record_from(data: Mapping[str, Any]) -> Record:
    """The inverse of to_json for a Record. KeyError, TypeError or ValueError when the data is something else."""
    fields = dict(data)
    fields["job"] = job_from(fields["job"])
    fields["windows"] = tuple(Window(**window) for window in fields["windows"])
    fields["failure"] = _failure_from(fields["failure"]) or no_rate(fields["windows"])
    fields["hosts"] = tuple(fields.get("hosts", ()))
    return Record(**fields)


def _failure_from(data: Mapping[str, Any] | None) -> Failure | None:
    return Failure(**{**data, "lines": tuple(data["lines"])}) if data else None


def trajectory_from(data: Mapping[str, Any]) -> Trajectory:
    """The inverse of to_json for a Trajectory; errors as in record_from."""
    lists = {name: tuple(data[name]) for name in ("losses", "gradient_norms", "step_seconds", "read_seconds")}
    return Trajectory(**{**data, **lists, "failure": _failure_from(data["failure"])})


def certificate_from(data: Mapping[str, Any]) -> Certificate:
    """The inverse of to_json for a Certificate; errors as in record_from."""
    return Certificate(
        **{
            **data,
            "trajectory": trajectory_from(data["trajectory"]),
            "differences": tuple(Difference(**{**one, "losses": tuple(one["losses"])}) for one in data["differences"]),
            "exceptions": tuple(data["exceptions"]),
            "bounds": tuple(Bound(**one) for one in data["bounds"]),
        }
    )


def proofs_from(data: Mapping[str, Any]) -> dict[str, tuple[Certificate, ...]]:
    """Certificates by job id, as Comparison holds them; errors as in record_from."""
    return {job: tuple(certificate_from(one) for one in certificates) for job, certificates in data.items()}


def comparison_from(data: Mapping[str, Any]) -> Comparison:
    """The inverse of to_json for a Comparison; ignores "schema", which results.json adds. Errors as in record_from."""
    fields = {key: value for key, value in data.items() if key != "schema"}
    fields["jobs"] = tuple(job_from(job) for job in fields["jobs"])
    fields["records"] = tuple(record_from(record) for record in fields["records"])
    fields["skips"] = tuple(map(skip_from, fields["skips"]))
    fields["proofs"] = proofs_from(fields.get("proofs", {}))
    return Comparison(**fields)

"""What adapter.toml may have: its keys, and the types and ranges of their values. dlperf.catalog.adapter, environment
and script say what they mean, and which values a text may have."""
# without `from __future__ import annotations`, which would hide Required

from typing import Annotated, Required, TypedDict

from msgspec import Meta

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[list[Text], Meta(min_length=1)]
#: a text, or several
Listed = Text | Texts
Whole = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=2**53)]
Positive = Annotated[float, Meta(gt=0, le=1e18)]
Scalar = str | bool | int | float
Variables = dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str]


class Replace(TypedDict):
    file: Text
    old: Text
    new: str


class Build(TypedDict, total=False):
    variables: Variables
    replace: list[Replace]


class Environment(TypedDict, total=False):
    python: Required[Texts]
    extra_index: list[Text]
    variables: Variables
    build: Build
    machines: Texts
    unavailable: dict[Text, Text]
    gigabytes: Positive
    memory: Positive
    capabilities: Listed
    cuda: Whole
    otherwise: str


class Image(TypedDict, total=False):
    ngc: str
    packages: Listed
    named: dict[Text, Text]
    capabilities: Listed
    cuda: Whole


class Support(TypedDict, total=False):
    family: Texts
    device: Texts
    precision: Texts
    input: Texts
    status: Required[Text]
    why: str


class Distributed(TypedDict, total=False):
    device: Texts
    status: Required[Text]
    why: str


class Servers(TypedDict, total=False):
    family: Texts
    device: Texts
    mode: Texts
    status: Required[Text]
    why: str
    options: dict[Text, Text]


class Kernels(TypedDict, total=False):
    family: Texts
    device: Texts
    precision: Texts
    needs: list[Text]
    kernels: Required[Text]
    why: str
    options: dict[Text, Text]


class Tuned(TypedDict, total=False):
    value: Required[Text]
    needs: Required[list[Text]]
    precision: Texts


class Option(TypedDict, total=False):
    about: str
    values: Required[Texts]
    any: bool
    family: Texts
    defaults: dict[Text, Text]
    labels: dict[Text, Text]
    environment: dict[Text, Text]
    launcher: dict[Text, Text]
    tuned: list[Tuned]


class Source(TypedDict, total=False):
    repository: Required[Text]
    commit: Required[Text]
    copy: dict[Text, Text]
    replace: list[Replace]


class Log(TypedDict, total=False):
    line: Required[Text]
    first: Whole
    every: Size
    timestamp: str
    rate_of: Text
    milliseconds: bool
    ranks: Text


When = dict[Text, Scalar | list[Scalar]]


class Words(TypedDict, total=False):
    when: When
    words: Required[Text]


class Sentence(TypedDict, total=False):
    when: When
    text: Required[Text]


#: NAME = VALUE, and `when`
Values = dict[Text, Scalar | When]


class Script(TypedDict, total=False):
    folder: Required[Text]
    inside: str
    input: Text
    data: str
    batch: Required[Text]
    batch_size: dict[Text, Size]
    start: Text
    stops: bool
    warmup_steps: Whole
    extra_steps: Whole
    log: Required[Log]
    command: list[Words]
    variables: list[Values]
    effective: list[Values]
    differs: list[Sentence]


class Imported(TypedDict, total=False):
    model: Required[Text]
    device: Required[Text]
    precision: Required[Text]
    batch_size: Required[Size]
    nnodes: Size
    nproc_per_node: Size
    input: Text
    source: Required[Text]
    files: Listed
    log: Log
    rates: Annotated[list[Positive], Meta(min_length=1)]
    differs: str
    effective: dict[Text, str]
    versions: dict[Text, str]


class Figures(TypedDict, total=False):
    """Of one that has figures alone."""

    title: Required[Text]
    homepage: str
    default: bool
    imported: Required[list[Imported]]


class Adapter(TypedDict, total=False):
    title: Required[Text]
    homepage: str
    distribution: Listed
    default: bool
    trains: bool
    proven: bool
    environment: dict[Text, Environment]
    support: list[Support]
    options: dict[Text, Option]
    distributed: list[Distributed]
    servers: list[Servers]
    source: Source
    script: dict[Text, Script]
    formats: dict[Text, Texts]
    image: dict[Text, Image]
    kernels: list[Kernels]
    launchers: list[Text]

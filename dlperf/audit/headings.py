"""What words of a table say: what a column is, of which model, device, precision, batch and size. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from dlperf.audit.estimators import ESTIMATED
from dlperf.audit.neutral import NEUTRAL

#: a file has few headings and labels, and many cells
cache = lru_cache(maxsize=2**14)

#: devices, as the heading of a column of numbers has them
_DEVICES = (
    r"(gpus?|devices?|accelerators?|cards?|trainers?|workers?|chips?|ranks|tpus?|hpus?|npus?|gcds?|cores|process(es)?)"
)
_COUNT = r"(num(ber)?( of)?|no\.?( of)?|n|nb|#( of)?|total|count( of)?|of|total number of) ?"
#: what a column is, by its heading in small letters with spaces for underscores, the first that fits; what holds of
#: columns of numbers, and of columns of words
NUMBERS = (
    (
        "sequence",
        r"seq(uence)?\.?[ -]?len|^(max(imum)? )?seq(uence|len)?s?$|^seq(uence)? ?length|^tokens per sequence$",
    ),
    ("micro_batch", r"micro ?-?batch( size)?|^mbs$|train micro batch size per gpu"),
    ("global_batch", r"(global|total|effective|overall|mini) ?-?(train )?(batch|bsz?\b)|^gbs$|^train batch size$"),
    ("accumulated", r"accumulated.*batch"),
    ("accumulation", r"accum|\bgrad(ient)?\.? ?acc\b|^gas?$|^(num(ber of)? )?micro ?-?batches$"),
    ("batch", r"batch(?! time)|\bbs\b|\bbsz\b"),
    ("per_node", rf"{_DEVICES}( num| count)? ?(/|per) ?(node|machine|host|server)|^n?proc(s|esses)? per node$"),
    ("nodes", rf"^({_COUNT})*n?(nodes?|machines?|hosts?|servers?|instances?)( num| number| count|s? used)?$|^nnodes$"),
    ("parallel", r"^(dp|data ?-?parallel( size| degree)?|dp size)$"),
    ("devices", rf"^({_COUNT})*n?{_DEVICES}( num| number| count| used| total|s? \(total\)| ?#)?$|^world ?-?size$"),
    ("warmup", r"warm-? ?up( steps| iter\w*| batches)?$|^(skipped|ignored|discarded)( steps| iter\w*)?$"),
    ("from_step", r"^(first timed|first measured|first|start|begin|measured from|from) step$"),
    ("epoch_steps", r"(steps|iterations|iters|batches) ?(per|in an?|/) ?epoch|epoch (steps|length)"),
    ("dataset", r"data ?-?set size|(images|samples|examples|records) (in|of|per) (the )?(data ?set|epoch)"),
    (
        "ran",
        r"(steps?|iters?|iterations?) (run|ran|logged|listed|executed|completed|done|finished|recorded)|"
        r"(ran|run|logged|executed|completed|done|finished|recorded|actual)( num)? (steps?|iters?|iterations?)",
    ),
    (
        "steps",
        rf"^({_COUNT})*((measured|timed|max|total|train|benchmark|claimed|bench) )?"
        r"(steps|iterations|iters)( (measured|timed|counted))?$",
    ),
    ("runs", r"^(num(ber of)? |n |# ?)?(runs|repeats|repetitions|trials|replicas|seeds|repeat count|n)$"),
    ("params", r"param(eter)?s?( count)?\b(?!.*server)|^model size$"),
    ("image_size", r"(image|input|crop) ?-?(size|res(olution)?|shape)|^resolution$"),
)
WORDS = (
    ("device", rf"^({_DEVICES}|hardware|machine|gpu|platform|node|instance)( type| name| model| config\w*)?s?$"),
    ("model", r"^(model|network|workload|architecture|benchmark|task|model name|test)$"),
    ("framework", r"^(framework|library|backend|framework name|software)s?$"),
    ("system", r"^(system|implementation|submitter|variant|config\w*|method|mode)$"),
    ("precision", r"^(precision|dtype|data ?type|math( mode)?|amp|compute type)$"),
    ("estimator", r"estimator|aggregation|^statistic$|^metric$|averag(ed|ing)|^how (measured|computed)$"),
    ("unit", r"^units?$"),
    ("listed", r"^listed step times$"),
    ("clip", r"clip"),
    ("loss_scale", r"loss ?-?scal"),
    ("optimizer", r"^optimi[sz]er$"),
    ("data", r"^(data|input|data ?set|data source)$"),
    ("throttled", r"throttl"),
    ("image_size", NUMBERS[-1][1]),
)
#: a column of times that pass, or of moments
CLOCK = (
    r"^((total|elapsed|wall|run) ?)?(seconds|elapsed|time|timestamp|ts|clock|date ?time|duration|runtime)( time)?"
    r"( ?[(\[]?s(ec\w*)?[)\]]?)?$"
)
#: a column of whole numbers that says which step a row is of
STEP = re.compile(r"^(global )?(step|iteration|iter|batch)s?( number)?$", re.IGNORECASE)
#: what a column of figures is, likewise
QUANTITIES = (
    ("other", r"\b(gpus?|devices?|accelerators?|chips?|cards?|nodes?|tpus?)[ -]?(hours?|hrs?|days|minutes)\b"),
    ("other", r"(time|latency).*speed ?-?up|throttl|other process|foreign"),
    (
        "efficiency",
        r"efficien(?!t ?-?net)|\beff\b|effizienz|efficacit|eficiencia|"
        r"(%|percent|share|fraction) of (the )?(linear|ideal|perfect)|"
        r"scal(ing|ability)\W*(%|percent|pct)|linearity",
    ),
    (
        "speedup",
        r"speed ?-?up|beschleunigung|accélération|acceleration (factor|ratio|over|vs)|scaling|times faster|"
        r"\bvs\.?\b|\brelative\b|\bnormali[sz]ed\b|\bratio\b|\bx faster\b",
    ),
    ("other", r"\bgain\b|improvement|uplift|\bfaster\b|overhead|\bdelta\b|\bdiff(erence)?\b"),
    (
        "time_to_train",
        r"time.to.(train|accuracy|solution)|train(ing)? time|epoch time|^(minutes|mins|hours|hrs|days)( to .*)?$|"
        r"\b(res ?net|bert|gpt|llama|mask r-?cnn|retina ?net|dlrm|u-?net|rnn-?t|diffusion)[\w .-]*"
        r"\((minutes|mins?|hours)\)$|"
        r"\b(time|seconds|secs?|s|minutes|min|hours|h) ?(/|per) ?epoch|\btime\b.*\(?\b(h|hrs|min|hours?|minutes)\b\)?$",
    ),
    ("other", r"processors? count|processor core count"),
    ("other", r"^(total |elapsed )?(samples|images|sentences|sequences|tokens)$"),
    ("other", CLOCK),
    ("other", r"[(\[] ?(ms|msec|us|µs|s|secs?|seconds|min|minutes|h|hrs?|hours) ?[)\]]$"),
    (
        "other",
        r"^(tp|pp|mp|ep|cp|sp|vp|vpp)( ?(size|degree))?$|"
        r"\bshare\b|fraction|of( the)?( \w+)? peak|"
        r"late?ncy|lantency|\bmem|loss|accuracy|\bauc\b|\bv?ram\b|util|usage|vocab|embedding|classes|flop|hidden|top-?[15]\b|"
        r"layers|parallel|seed|\bstd|\bsem\b|deviation|heads|length|[mh]fu\b|power|watt|energy|cost|price|epoch|year|"
        r"(ms|s|sec|seconds) ?(/|per) ?(step|it|batch)|(step|batch|iter\w*|epoch) (time|ms\b|seconds\b|s$)|"
        r"time (per|/)|^ms\b|"
        r"\b(p50|p9\d|min|max|jitter|error|temp\w*|clock|perplexity|bleu|threads|cpus?|version|id|rank|warm|dim\w*|size)\b|^n$",
    ),
)
_COUNTED = (
    "images?|imgs?|im|samples?|sentences?|sequences?|seqs?|tokens?|toks?|tks|words?|steps?|lines?|examples?|iters?|"
    "iterations?|it|records?|instances?|ins|pairs|frames?|batches|queries|utterances?|clips?|videos?|graphs?|molecules?|"
    "documents?|docs?"
)
#: what a rate is of a part of: a device, by its names, or a node
DEVICE = "gpu|device|card|chip|accelerator|core|tpu|hpu|npu|gcd|worker|trainer|rank|process|socket"
NODE = "node|machine|host|server"
PARTS = {"device": DEVICE, "node": NODE}
_EACH = f"{DEVICE}|{NODE}"
UNITS = re.compile(
    rf"(?<![a-z])(?P<what>{_COUNTED})\s*(?:/|per|p)\s*(?P<slow>seconds?|secs?|s|min(?:ute)?|h(?:our)?)\b"
    rf"(?:\s*(?:/|per|each|-|(?=gpu|device|card|chip|core|tpu|hpu))\s*(?P<each>{_EACH})s?\b)?|(?<![a-z])(?P<what2>{_COUNTED})\s*(?:/|per)\s*(?P<each2>{_EACH})"
    r"\s*(?:/|per)\s*(?P<slow2>seconds?|secs?|s)\b",
    re.IGNORECASE,
)
RATE = re.compile(
    r"through?t?put|throuthput|\brates?\b|\bips\b|\bfps\b|(?<!deep )\bspeed\b|\bperf(ormance)?\b", re.IGNORECASE
)
#: of a page whose tables have times, where nothing in it says that they are rates
TIMED = re.compile(
    r"\b(in|\() ?(minutes|mins?|hours)\b|minutes\b|time[- ]to[- ](train|accuracy|solution)|training times?\b|"
    r"\blatency\b|\bms\b|milliseconds|step times?\b|lower is better",
    re.IGNORECASE,
)
EACH = re.compile(rf"\b(?:per|each|every|/)[ -]?(?P<what>{DEVICE}|{NODE})s?\b", re.IGNORECASE)
_PER_EACH = rf"\s*(?:/|per|on each|each)[ -]?(?:{_EACH})s?\b"
#: what is of each device in a heading, and is no rate: `bs64/GPU`, `192 per GPU`, `8 GPUs per node`
HELD = re.compile(
    r"(?:(?<=[(\[,;@])\s*per[ -]|\bper-)(?:gpu|device|card|node|chip)[ -]+(?:(?:mini|micro)[ -]?)?(?:bsz?\b|batch)|"
    rf"\b(?:bsz?|batch(?:[ -]?sizes?)?)(?:\s*(?:of|is|[=:@]))*\s*(?:\d[\d,]*k?)?{_PER_EACH}|"
    rf"(?<![\w.])\d[\d,]*k?\s*(?:(?:{_COUNTED}|{DEVICE})s?\s*)?{_PER_EACH}(?!\s*(?:/|per))",
    re.IGNORECASE,
)
PRECISIONS = (
    ("tf32", r"\btf32\b"),
    ("amp", r"\bamp\b|mixed"),
    ("bf16", r"\bbf(loat)?16\b"),
    ("fp16", r"\b(fp|float)16\b|\bhalf\b"),
    ("fp32", r"\b(fp|float)32\b|\bsingle precision\b"),
)
MODELS = re.compile(
    r"(?:se[- _]|wide[- _])?i?resnex?t[- _]?(?:50(?:[- _]?v1(?:\.5|b)?)?|101|152|18|34)|\brn50\b|"
    r"bert[- _]?(?:base|large)(?:-(?:un)?cased)?|"
    r"vgg[- _]?1[169]|gpt(?:[- _]?[23])?(?: ?(?:small|medium|large|xl))?(?![a-z])|inception[- _]?v?[34]|alexnet|"
    r"transformer[- ]?xl|transformer|word2vec|(?<![a-z])ctr(?:[-_ ]dnn)?(?![a-z])|simnet(?:[-_ ]bow)?",
    re.IGNORECASE,
)
DEVICES = re.compile(
    r"\b(?:(?:NVIDIA|Tesla|GeForce|AMD|Instinct)\s+)*(GH200|GB200|B200|H200|H100|A100|A800|H800|V100|P100|K80|T4|L40S|L40"
    r"|L4|A30|A10G?|RTX ?\w+(?: (?:Ada|Ti))?|MI\d{3}X?|TPU ?v\d[ep]?|Gaudi ?\d?)\b"
    r"(?:[- ]?(?:SXM\d?|PCIe?|NVL))?(?:[- ]?\d{2,3} ?GB?\b)?(?: HBM\d\w?)?",
    re.IGNORECASE,
)
_CARDS = re.compile(rf"\b[dh]gx\b|\bnvidia\b|{DEVICES.pattern}", re.IGNORECASE)
#: kinds that count these
COUNTS = ("per_node", "nodes", "devices")
FRAMEWORKS = (
    ("pytorch", r"py ?torch|\btorch"),
    ("tensorflow", r"tensor ?flow|\btf ?[12](\.\d+)?\b|\btf\b"),
    ("mxnet", r"mxnet|gluon"),
    ("oneflow", r"one ?flow"),
    ("paddle", r"paddle"),
    ("jax", r"\bjax\b|\bflax\b"),
    ("mindspore", r"mindspore"),
    ("keras", r"\bkeras\b"),
)
_N_C = re.compile(r"\bN(\d+)C(\d+)\b")  # nodes and all cards, as PaddlePaddle writes them
SIZE = re.compile(r"(\d+)\s*n(?:odes?)?\s*[x_\- ]*\s*(\d+)\s*([gd])(?:pus?|evices?)?", re.IGNORECASE)
_PER_NODE = re.compile(
    r"(\d+)\s*(?:nodes?|machines?|hosts?|servers?|instances?)?\s*[x×*]\s*\(?(\d+)\s*[x×*]?\s*"
    rf"(?:gpus?|devices?|cards?|accelerators?|{DEVICES.pattern[2:]})",
    re.IGNORECASE,
)
#: nodes by the devices of each, as clusters have them: 4x8
_BY = re.compile(r"(\d{1,4}) ?[x×*] ?(1|2|4|8|16)")
_NODES = re.compile(r"(?<![\w.])(\d+)\s*(?:nodes?|machines?|hosts?|servers?|instances?)\b", re.IGNORECASE)
#: devices, and in brackets their nodes
_OF_NODES = re.compile(r"(\d{1,7}) ?\(\s?(\d{1,6}) ?(?:nodes?|machines?|hosts?|servers?)\)", re.IGNORECASE)
_WHOLE = re.compile(
    r"(?<![\w.])(?<![A-Za-z]-)(\d+)[ -]*(?:[x×*][ -]*)?"
    rf"(?:gpus?|devices?|cards?|accelerators?|chips?|tpus?|hpus?|trainers?|{DEVICES.pattern})(?![\w])",
    re.IGNORECASE,
)
_TIMES = re.compile(rf"(?:{DEVICES.pattern})\s*\)?\s*[x×*]\s*(\d+)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"\b(?:gpus?|devices?|cards?|accelerators?|ranks?|world[_ ]?size)\s*[=:]\s*(\d{1,6})\b", re.IGNORECASE
)
BATCH = re.compile(
    r"(?P<of>global|total|effective|overall)?[ -]*(?:(?:train|mini|local|per[- ](?:gpu|device)|per)[- ]*)*"
    r"\b(?:bsz?|batch(?:[ _-]?size)?)(?:[ _]*(?:is|of|per|/|each|gpu|device))*\s*[=:]?\s*(?P<number>\d[\d,]*)",
    re.IGNORECASE,
)


#: as in ksamples
_KILO = re.compile(r"\bk(?=(?:samples?|images?|imgs?|tokens?|toks?|sequences?|seqs?|words?|examples?)\b)")
#: before what is counted
THOUSANDS = re.compile(r"(\bthousands?( of)?|\bkilo|\bk) ?$")
_PLAIN_RATE = re.compile(
    r"(?<![a-z])(images?|imgs?|samples?|sentences?|sequences?|seqs?|tokens?|toks?|words?|examples?)_s(?:ec)?(?=_|$)",
    re.I,
)


#: as llm-foundry's tables have them
LETTERS = {"T": "tokens", "S": "samples"}
_LETTER_RATE = re.compile(r"\(([TS])/s(?=[/)])")


@cache
def normal(head: str) -> str:
    """In small letters, with spaces for underscores and before capitals; img_s as img/s."""
    head = _LETTER_RATE.sub(lambda found: f"({LETTERS[found[1]]}/s", _PLAIN_RATE.sub(r"\1/s", head))
    head = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", head.replace("_", " ")).lower()
    return " ".join(_KILO.sub("k ", head).split())


@cache
def kind(head: str, numbers: bool) -> str:
    """What a column is, of numbers or of words; empty where its heading does not tell."""
    told = re.sub(r"\s*[(\[][^)\]]*[)\]]$", "", normal(head)) or normal(head)
    if told == "first step" and told != normal(head):
        return ""  # its seconds
    either = [one for one in WORDS if one[0] in ("clip", "loss_scale")]
    bare = " ".join(_CARDS.sub(" ", told).split())
    if (
        numbers
        and bare != told
        and (of_cards := [name for name, one in NUMBERS if name in COUNTS and re.search(one, bare)])
    ):
        return of_cards[0]  # H100 GPUs, DGX A100 nodes
    return next((name for name, pattern in ([*NUMBERS, *either] if numbers else WORDS) if re.search(pattern, told)), "")


@cache
def quantity(head: str) -> str:
    told = normal(head)
    return next((name for name, pattern in QUANTITIES if re.search(pattern, told)), "")


@cache
def rated(head: str) -> bool:
    """Whether a heading says that its figures are rates."""
    told = normal(head)
    return bool(UNITS.search(told)) or (bool(RATE.search(told)) and quantity(head) in ("", "other"))


#: a heading that is of a rate whatever it says of it
THROUGHPUT = re.compile(
    r"^((mean|average|avg|median|total|overall|aggregate|measured|training) )?throughput\b(?!.*speed ?up)"
)


@cache
def unit(told: str, prose: bool = False) -> str:
    """Of a rate, as `images/s`, `seq/s/gpu`; empty where none is told. prose: whether other things may be of a GPU in
    it, as `128 per GPU`."""
    found = UNITS.search(normal(told))
    told = told if prose else HELD.sub(" ", normal(told))
    if not found:
        each = EACH.search(normal(told))
        return f"samples/s/{_part(each['what'])}" if each and RATE.search(normal(told)) and not prose else ""
    what, each_ = found["what"] or found["what2"], found["each"] or found["each2"]
    what = f"k{what}" if THOUSANDS.search(normal(told)[: found.start()]) else what
    slow = found["slow"] or found["slow2"]
    per = "min" if slow.startswith("m") else "h" if slow.startswith("h") else "s"
    if not each_ and not prose and (other := EACH.search(normal(told))):
        each_ = _part(other["what"])
    return f"{what}/{per}" + (f"/{each_}" if each_ else "")


def _part(told: str) -> str:
    """Of a word for what has a part of a rate: a node, or a device."""
    return "node" if re.fullmatch(NODE, told) else "gpu"


@cache
def precision(told: str) -> str:
    """Of a text that names one; of two, as `FP32 - mixed precision`, none."""
    found = [name for name, pattern in PRECISIONS if re.search(pattern, told, re.IGNORECASE)]
    if found == ["amp", "fp16"] or found == ["amp", "bf16"]:
        return found[1] if found[1] == "bf16" else "amp"
    return found[0] if len(found) == 1 else ""


@cache
def model(told: str) -> str:
    found = MODELS.search(told)
    return found[0] if found else ""


@cache
def device(told: str) -> str:
    found = DEVICES.search(told)
    return found[0] if found else ""


@cache
def card(told: str) -> str:
    """What a device is called in short: V100 of a Tesla V100-SXM2-16GB."""
    found = DEVICES.search(told)
    return found[1].upper() if found else told.lower()


@cache
def framework(told: str) -> str:
    found = [name for name, pattern in FRAMEWORKS if re.search(pattern, told, re.IGNORECASE)]
    found = [name for name in found if name != "keras"] or found  # on one of the others
    return found[0] if len(found) == 1 else ""


_PLURAL = re.compile(r"(?<=[A-Z]\d00)s\b")


@cache
def size(told: str) -> tuple[int | None, int | None]:
    """Nodes and all devices that a text tells: 4n8g, 2 nodes (16 GPUs), 8x V100, 2x 8x A100, 32 V100s."""
    told = _PLURAL.sub("", told)
    if found := SIZE.search(told):
        nodes, each = int(found[1]), int(found[2])
        return nodes or None, (each if found[3] in "dD" else nodes * each) or None
    if found := _N_C.search(told):
        return int(found[1]) or None, int(found[2]) or None
    if found := _BY.fullmatch(told.strip()):
        return int(found[1]) or None, int(found[1]) * int(found[2]) or None
    if found := _OF_NODES.fullmatch(told.strip()):
        return int(found[2]) or None, int(found[1]) or None
    nodes_ = int(found[1]) if (found := _NODES.search(told)) else None
    if found := _PER_NODE.search(told):
        return int(found[1]), int(found[1]) * int(found[2])
    found = _WHOLE.search(told) or _TIMES.search(told) or _NAMED.search(told)
    if not found:
        return nodes_, None
    whole = next(int(one) for one in found.groups() if one and one.isdigit())
    each_ = nodes_ and (
        re.match(r"\s*(?:each|per node|/ ?node|a node)", told[found.end() :], re.IGNORECASE)
        or re.search(r"nodes?,?\s*(?:each\s*)?(?:with|of|having)\s*$", told[: found.start()], re.IGNORECASE)
    )
    return nodes_, (whole * nodes_ if each_ and nodes_ else whole) or None


@cache
def batch(told: str) -> tuple[str, str]:
    """The batch size that a text tells, and of what it is; empty where it tells none, or several."""
    found = {(one["number"].replace(",", "").rstrip(","), bool(one["of"])) for one in BATCH.finditer(told)}
    if len(found) != 1:
        return "", ""
    number, whole = found.pop()
    return number, "global" if whole else "device"


@cache
def rest(*told: str) -> str:
    """What tells systems apart that no other field has: the words that are left, each once."""
    text = re.sub(r"\b(table|tab\.|figure|fig\.|appendix) ?\d+[.:]?", " ", " ".join(told).replace("_", " "), flags=re.I)
    for _, pattern in (*ESTIMATED, *PRECISIONS, *FRAMEWORKS):
        text = re.sub(pattern, " ", text, flags=re.IGNORECASE)
    for pattern_ in (UNITS, BATCH, SIZE, _PER_NODE, _NODES, _WHOLE, _TIMES, _NAMED, DEVICES, MODELS, RATE, EACH):
        text = pattern_.sub(" ", text)
    words = [one.strip(".-/:*") for one in re.split(r"[\s()\[\],;=|_]+", text.lower())]
    return " ".join(dict.fromkeys(one for one in words if one and one not in NEUTRAL))


@cache
def bare(head: str) -> bool:
    """Whether a heading has a number of devices alone: 8, x8, 8 GPUs, 8x V100, 1n8g, 4x8."""
    return bool(re.fullmatch(rf"x?\d+\s*x?|{_BY.pattern}", head.strip(), re.IGNORECASE)) or (
        any(size(head)) and not rest(head)
    )


def whole_numbers(told: str, head: str) -> str:
    """Without commas of thousands, unless a heading names two precisions: then a cell has a number for each."""
    return told if len(order(head)) == 2 else re.sub(r"(?<=\d),(?=\d{3}\b)", "", told)


def order(head: str) -> Sequence[bool]:
    """Of a heading that names two precisions, whether each is a narrow one."""
    names = re.findall(r"mixed precision|FP16|AMP|BF16|FP32|TF32", head, re.IGNORECASE)
    return [not re.fullmatch("FP32|TF32", name, re.IGNORECASE) for name in names]

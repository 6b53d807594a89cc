"""GPT-2 pretraining: the network, its optimizer and its synthetic batches.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), trained as nanoGPT and llm.c do: without
dropout, with AdamW.

Network: token + position embeddings - layers - LayerNorm - head, whose weight is the token embedding (tied), without a
bias. A layer, pre-norm:

    x = x + c_proj(attention(c_attn(LayerNorm(x))))
    x = x + c_proj(GELU(c_fc(LayerNorm(x))))

c_attn gives query, key and value, in this order, of all heads. attention is softmax(q k^T / sqrt(head)) v over a
position and those before it. GELU is the form with tanh, LayerNorm's eps is 1e-5. Names are those of Hugging Face's
GPT2LMHeadModel; dense weights are (out, in), as nanoGPT has them.

Loss: cross-entropy of each next token, mean over all positions of the batch, in float32 or better.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf.models.parameters import Init, Parameter, dense, norm, random_state

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Config(NamedTuple):
    layers: int = 12
    hidden: int = 768
    heads: int = 12
    vocabulary: int = 50257
    positions: int = 1024  # rows of the position table
    sequence: int = 1024  # tokens of a training example
    norm_eps: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def intermediate(self) -> int:
        return 4 * self.hidden


SIZES = {
    "gpt2_256": Config(sequence=256),  # what a CPU trains: with 1024 tokens OneFlow takes 15 GB
    "gpt2_512": Config(sequence=512),
    "gpt2": Config(),
    "gpt2_padded_256": Config(vocabulary=50304, sequence=256),  # a multiple of 128, as tensor cores like it: nanoGPT's
    "gpt2_padded": Config(vocabulary=50304),
    "gpt2_medium": Config(layers=24, hidden=1024, heads=16),
    "gpt2_large": Config(layers=36, hidden=1280, heads=20),
    "gpt2_xl": Config(layers=48, hidden=1600, heads=25),
    "gpt_tiny": Config(layers=2, hidden=32, heads=2, vocabulary=256, positions=32, sequence=32),
}
#: for checking in float64: the same network and weights, shorter rows
SIZES.update({name + "_check": config._replace(sequence=32) for name, config in SIZES.items()})
#: and less deep, where weights, gradients and moments of float64 would take 11 to 50 GB
for _name, _layers in {"gpt2_medium": 6, "gpt2_large": 4, "gpt2_xl": 2}.items():
    SIZES[_name + "_check"] = SIZES[_name + "_check"]._replace(layers=_layers)

TITLES = {
    "gpt2_256": "GPT-2 124M pretraining, 256 tokens",
    "gpt2_512": "GPT-2 124M pretraining, 512 tokens",
    "gpt2": "GPT-2 124M pretraining",
    "gpt2_padded_256": "GPT-2 124M pretraining, 256 tokens, vocabulary padded to 50,304",
    "gpt2_padded": "GPT-2 124M pretraining, vocabulary padded to 50,304",
    "gpt2_medium": "GPT-2 355M pretraining",
    "gpt2_large": "GPT-2 774M pretraining",
    "gpt2_xl": "GPT-2 1558M pretraining",
}
ALIASES: Dict[str, str] = {}
DEFAULT = ""
#: what the report counts, and its unit
SAMPLE = "tokens"
RATE_UNIT = "tokens/s"
#: rows per device where none is asked: what fits beside the logits of 1024 tokens; on CPU a step of a few seconds
BATCH_SIZE = {"cuda": {"fp32": 8, "tf32": 8, "amp": 16}, "cpu": 1}
INPUT = "text"
EFFECTIVE = ("clip_norm", "gelu", "attention")
WORK = ("clip_norm", "sequence", "vocabulary")
MEANINGS = {
    "clip_norm": "Global norm to which gradients are scaled down; off saves one or two passes over all gradients.",
    "sequence": "Tokens of a row; attention costs the square of it.",
    "vocabulary": "Tokens that the head chooses from: the width of the largest product.",
    "gelu": "The kernel of GELU; all compute the form with tanh.",
    "attention": "How attention is written: as single products and a softmax, or as one kernel.",
    "norm_eps": "Added to a variance before its root; as float32 it is 2.5e-13 less.",
    "norm_moments": "Whether a mean and a variance are taken in one pass over the values or in two.",
}
TOTALS: Dict[str, str] = {}
COUNTED = ""
SMOOTH = True


class Optimizer(NamedTuple):
    """AdamW, as dlperf.models.bert.Optimizer has it, with nanoGPT's values, constant: weight decay applies to the
    embeddings and to dense weights, not to biases nor LayerNorm."""

    learning_rate: float = 6e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0


def optimizer(global_batch_size: int) -> Optimizer:
    return Optimizer()


def parameters(config: Config) -> List[Parameter]:
    """Every tensor, in the order of the forward pass. GPT-2 124M has 124,439,808 trained values."""
    hidden = config.hidden
    result = [
        Parameter("transformer.wte.weight", (config.vocabulary, hidden), "embedding", 0.02),
        Parameter("transformer.wpe.weight", (config.positions, hidden), "embedding", 0.02),
    ]
    added = 0.02 / (2 * config.layers) ** 0.5  # of what a layer adds to its input, twice
    for index in range(config.layers):
        layer = f"transformer.h.{index}."
        result += norm(layer + "ln_1", hidden)
        result += dense(layer + "attn.c_attn", hidden, 3 * hidden)
        result += dense(layer + "attn.c_proj", hidden, hidden, added)
        result += norm(layer + "ln_2", hidden)
        result += dense(layer + "mlp.c_fc", hidden, config.intermediate)
        result += dense(layer + "mlp.c_proj", config.intermediate, hidden, added)
    return result + norm("transformer.ln_f", hidden)


def revealing(config: Config) -> List[Parameter]:
    """Embeddings whose variance is about 2e-5, beside which an epsilon of 1e-5 counts; attention that prefers some
    tokens; in every second layer GELU's inputs about -3.5, where the form with erf is 32 % off;
    biases, scales and shifts that are not 0 and 1."""
    alike = config.hidden**-0.5  # a dense layer's deviation, whose outputs are then as large as its inputs
    inits: Dict[str, Init] = {
        "embedding": 0.003,
        "bias": 0.05,
        "scale": (1.0, 0.2),
        "shift": 0.05,
        "transformer.ln_f.weight": (6.0, 1.0),  # as large logits as with embeddings of the usual size
    }
    for index in range(config.layers):
        layer = f"transformer.h.{index}."
        inits[layer + "attn.c_proj.weight"] = 0.3 * alike
        if index % 2:
            inits[layer + "mlp.c_fc.weight"] = 0.1 * alike
            inits[layer + "mlp.c_fc.bias"] = (-3.5, 0.1)
    return [
        one._replace(init=inits.get(one.name, inits.get(one.kind, one.shape[-1] ** -0.5))) for one in parameters(config)
    ]


def batch(config: Config, batch_size: int, seed: int, index: int) -> "Dict[str, NDArray[Any]]":
    """Synthetic batch number `index`, of random text.

    Returns input_ids and labels: int32 (batch_size, sequence); a label is the token after the one at its place.
    """
    import numpy

    random = random_state(seed, f"gpt batch {index}")
    tokens = random.randint(0, config.vocabulary, (batch_size, config.sequence + 1)).astype("int32")
    return {"input_ids": numpy.ascontiguousarray(tokens[:, :-1]), "labels": numpy.ascontiguousarray(tokens[:, 1:])}


def logits(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The network's outputs: name -> shape without the batch axis."""
    return {"logits": (config.sequence, config.vocabulary)}


def samples(config: Config) -> str:
    return f"rows of {config.sequence} tokens"


def units(config: Config) -> int:
    return config.sequence


def first_loss(config: Config) -> Tuple[float, float]:
    """That of a guess: ln(vocabulary)."""
    return math.log(config.vocabulary), 0.05


def shapes(config: Config) -> Dict[str, Tuple[int, ...]]:
    """The logits: of each position."""
    return logits(config)


def observed(shapes: Mapping[str, Sequence[int]]) -> Dict[str, str]:
    """Positions and tokens of the head's logits, if they have these two axes."""
    found = tuple(shapes.get("logits", ()))
    return dict(zip(("sequence", "vocabulary"), map(str, found))) if len(found) == 2 else {}


def flops(config: Config) -> Dict[str, int]:
    """Floating-point operations of one training step for one row: 3 times the forward pass, 2 per multiply-add, matrix
    products only. Attention counts whole, as nanoGPT and PaLM count it, though half of it is masked. GPT-2 124M at
    1024 tokens: 8.7e11, which is 8.5e8 a token."""
    tokens, hidden = config.sequence, config.hidden
    macs = config.layers * tokens * (4 * hidden * hidden + 2 * hidden * config.intermediate)
    macs += tokens * hidden * config.vocabulary
    return {"product": 3 * 2 * macs, "attention": 3 * 2 * config.layers * 2 * tokens * tokens * hidden}


def normalised(config: Config) -> Dict[str, int]:
    """No BatchNorm."""
    return {}


def activations(config: Config) -> int:
    """Values that the matrix products give for one row, which a step keeps for its gradients. GPT-2 124M: 3.1e8."""
    tokens, hidden = config.sequence, config.hidden
    layer = tokens * (5 * hidden + config.intermediate) + config.heads * tokens * tokens
    return config.layers * layer + tokens * config.vocabulary

"""Networks that we did not write confirm ours: with our weights and our batch they give the published trajectory's
first loss, logits and gradients. Every framework is compared with that trajectory."""

import os
import subprocess
from pathlib import Path

import numpy
import pytest

from dlperf.catalog import reader
from dlperf.envs import kinds
from dlperf.proof import judge, published
from dlperf.proof.asked import BATCH_SIZE, SEED
from dlperf.proof.published import REFERENCES
from dlperf.runs import bundle

pytestmark = pytest.mark.framework

HERE = Path(__file__).parent
#: model -> (adapter whose environment has the network, script that runs it)
ORACLES = {
    "bert_base_check": (HERE.parent / "bench" / "pytorch_plain", "oracle_bert.py"),  # Hugging Face transformers
    "bert_large_check": (HERE.parent / "bench" / "pytorch_plain", "oracle_bert.py"),
    "gpt2_check": (HERE.parent / "bench" / "pytorch_plain", "oracle_gpt.py"),  # the same
    "transformer_check": (Path(reader.adapters()["pytorch"].folder), "oracle_transformer.py"),  # torch.nn.Transformer
    "transformer_post_check": (Path(reader.adapters()["pytorch"].folder), "oracle_transformer.py"),
    "resnet50_check": (Path(reader.adapters()["paddle"].folder), "oracle_paddle.py"),  # paddle.vision
    "vgg16_cifar": (Path(reader.adapters()["paddle"].folder), "oracle_paddle.py"),
    "vgg16": (Path(reader.adapters()["paddle"].folder), "oracle_paddle.py"),
    "se_resnet50_check": (HERE.parent / "bench" / "mxnet_plain", "oracle_se.py"),  # GluonCV
    "se_resnext50_check": (HERE.parent / "bench" / "mxnet_plain", "oracle_se.py"),
    "simnet_bow_check": (Path(reader.adapters()["pytorch"].folder), "oracle_simnet_bow.py"),  # EmbeddingBag
    "ctr_dnn_check": (Path(reader.adapters()["tensorflow"].folder), "oracle_ctr_dnn.py"),  # Keras
    "word2vec_check": (Path(reader.adapters()["tensorflow"].folder), "oracle_word2vec.py"),  # tf.nn.nce_loss
}


#: networks that are deeper or wider than another one here, from the same script: `make test-long` has them
LARGER = ("bert_large_check", "se_resnext50_check", "transformer_post_check")


@pytest.mark.parametrize(
    "model", [pytest.param(one, marks=pytest.mark.long if one in LARGER else []) for one in ORACLES]
)
def test_a_network_that_we_did_not_write_computes_the_same(model, tmp_path):
    folder, script = ORACLES[model]
    environment = kinds.ensure(reader.read(folder), "cpu", progress=print)
    bundle.copy_code(tmp_path / "code", [])
    out = tmp_path / "oracle.npz"
    words = [environment.python, HERE / script, model, BATCH_SIZE, SEED, out]
    variables = {"PYTHONPATH": str(tmp_path / "code"), "TRANSFORMERS_OFFLINE": "1", **environment.variables}
    ended = subprocess.run([str(w) for w in words], env={**os.environ, **variables}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    with numpy.load(out) as arrays:
        theirs = {name: arrays[name] for name in arrays.files}
    path = REFERENCES / f"{model}.npz"
    with numpy.load(path) as arrays:
        ours = {name: arrays[name] for name in arrays.files}
    losses = published.published(model).losses
    assert float(theirs["loss"]) == pytest.approx(losses[0], rel=1e-9)
    logits, worst = judge.worst_tensor(ours, theirs, "logits/")
    assert logits < 1e-9, worst
    assert {name for name in ours if name.startswith("gradient/")} <= set(theirs)
    gradient, worst = judge.worst_tensor(ours, theirs, "gradient/")
    assert gradient < 1e-7, worst
    print(f"{model}: logits {logits:.0e}, gradients {gradient:.0e} ({worst})")

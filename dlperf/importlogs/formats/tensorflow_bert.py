"""TensorFlow's model garden: BERT."""

from __future__ import annotations

from dlperf.importlogs.facts import bert
from dlperf.importlogs.format import Format, ordinals
from dlperf.importlogs.formats.tensorflow_resnet50 import strategy

FORMAT = Format(
    name="tensorflow-bert",
    title="the TensorFlow model garden's BERT",
    framework="tensorflow",
    unit="sentences/s",
    needle=b"Train Step:",
    logs=("tensorflow-models/bert_base",),
    publisher=ordinals(20, 120),
    who="DLPerf's extract_tensorflow_logs_time.py",
    facts={"batch": "train_batch_size", "steps": "num_steps_per_epoch", "type": "dtype"},
    told=(bert, strategy),
    batch="global",
)

# ruff: noqa: E501 - lines of logs
"""What logs tell of their runs, and what flags must not say against it."""

import pytest
from invented_logs import CASES, FORMS, dll, figures, moments, oneflow, refused, written

from dlperf.importlogs import read, size

MIRRORED = ", ".join(f"'/job:localhost/replica:0/task:0/device:GPU:{at}'" for at in range(4))
GLUON = "INFO:root:Namespace(accumulate=1, comm_backend='horovod', dtype='{}', gpus=None, model='bert_12_768_12', total_batch_size=64)"
#: a format, its head, and what is told
HEADS = [
    ("oneflow-resnet50", "Running resnet50: num_gpu_per_node = 4, num_nodes = 2.\nuse_fp16 = True\nmodel = resnet50", {"nodes": "2", "precision": "amp", "model": "resnet50"}),
    ("oneflow-bert", "Running BERT Pretrain: num_gpu_per_node = 8, num_nodes = 1.\nuse_fp16 = False\nnum_hidden_layers = 24\nnum_attention_heads = 16\nhidden_size_per_head = 64", {"nodes": "1", "precision": "single", "model": "bert_large"}),
    ("ngc-tensorflow1-bert", "  bert_config_file: /data/uncased_L-12_H-768_A-12/bert_config.json\n  vocab_file: /data/uncased_L-24_H-1024_A-16/vocab.txt\n  horovod: False\n  amp: True", {"devices": "1", "precision": "amp", "model": "bert_base"}),
    ("ngc-tensorflow1-bert", "  horovod: True\nINFO:tensorflow:hvd.size() = 16 hvd.rank() = 0\n  amp: False\n  use_fp16: False", {"devices": "16", "precision": "single"}),
    ("ngc-tensorflow1-bert", "mpirun -np 8 --allow-run-as-root python3 run.py -n 3", {"devices": "8"}),
    ("ngc-tensorflow1-bert", "mpirun --hostfile hosts python3 run.py -n 3", {}),
    ("ngc-tensorflow1-resnet50", dll(1, "PARAMETER arch : resnet50  use_tf_amp : True "), {"precision": "amp", "model": "resnet50"}),
    ("ngc-pytorch-resnet50", dll(1, "PARAMETER arch : resnet50  batch_size : 64  fp16 : False  amp : True  world_size : 16 "), {"devices": "16", "precision": "amp"}),
    ("ngc-pytorch-resnet50", "\n".join(f"[default{at}]:Namespace()" for at in range(8)), {"devices_per_node": "8"}),
    ("ngc-pytorch-bert", "\n".join(f"device: cuda:{at} n_gpu: 1, distributed training: True, 16-bits training: False" for at in range(4)), {"devices_per_node": "4", "precision": "single"}),
    ("ngc-pytorch-bert", "torchrun --nproc_per_node=8 --nnodes=2 run_pretraining.py --fp16 --config_file=bert_configs/large.json", {"nodes": "2", "devices_per_node": "8", "precision": "amp", "model": "bert_large"}),
    ("ngc-mxnet", "Namespace(amp=False, arch='resnetv15', num_layers=50, dtype='float16')", {"precision": "fp16", "model": "resnet50"}),
    ("ngc-mxnet", "Namespace(batch_size=512, gpus=[0, 1, 2, 3], kv_store='horovod')", {"devices_per_node": "4"}),
    ("ngc-mxnet-dllogger", "PARAMETER gpus : [0, 1]  kv_store : horovod  batch_size : 512 ", {"devices_per_node": "2"}),
    ("ngc-mxnet-dllogger", "PARAMETER gpus : [0]  kv_store : horovod  batch_size : 512 ", {}),
    ("paddle-resnet50", "cluster_node_ips: 10.0.0.1,10.0.0.2\nnode_ip: 10.0.0.1\nselected_gpus: 0,1,2\n", {"nodes": "2", "devices_per_node": "3"}),
    ("tensorflow-resnet50", "'distribution_strategy': 'mirrored', 'num_gpus': 1}, 'train_dataset': {'batch_size': 128, 'dtype': 'float16'}", {"nodes": "1", "devices_per_node": "1", "batch": "128", "precision": "fp16"}),
    ("tensorflow-resnet50", "'distribution_strategy': 'multi_worker_mirrored', 'num_gpus': 8", {"devices_per_node": "8"}),
    ("tensorflow-resnet50", "'num_gpus': 8, 'train_data': {'dtype': 'float32', 'global_batch_size': 2048}}, 'validation_data': {'global_batch_size': 64}", {"devices_per_node": "8", "batch": "2048", "precision": "single"}),
    ("gluon-cv", "Namespace(batch_size=64, dtype='float16', model='resnet50_v1b', num_gpus=4)", {"nodes": "1", "devices_per_node": "4", "batch": "64", "precision": "fp16"}),
    ("gluon-cv", "Namespace(batch_size=64, dtype='float32', model='resnet50_v1b', num_gpus=0)", {"precision": "single"}),
    ("gluon-nlp", GLUON.format("float16"), {"precision": "fp16", "model": "bert_base"}),
    ("paddle-resnet50", "model : ResNet50\n use_fp16 : True\nusing ParallelExecutor, 8 cards are used, so 8 programs", {"devices_per_node": "8", "precision": "amp"}),
    ("paddle-resnet50", "python -m paddle.distributed.launch train.py\nusing ParallelExecutor, 1 cards are used, so 1", {}),
    ("paddle-bert", "is_distributed: False\nuse_fp16: False\nhidden_size: 768\nnum_hidden_layers: 12\nDevice count 4\n", {"nodes": "1", "devices_per_node": "4", "precision": "single", "model": "bert_base"}),
    ("paddle-clas", "ppcls INFO: AMP : \nppcls INFO:     scale_loss : 128.0\nppcls INFO:     level : O2\nppcls INFO: Arch : \nppcls INFO:     name : ResNet50", {"precision": "fp16", "model": "ResNet50"}),
    ("paddle-clas", "ppcls INFO: Arch : \nppcls INFO:     class_num : 1000\nppcls INFO:     head : \nppcls INFO:         name : ArcMargin\nppcls INFO:     name : MobileNetV3\nppcls INFO: Optimizer : \nppcls INFO:     name : Momentum\n", {"model": "MobileNetV3", "precision": "single"}),
    ("paddle-clas", "\033[32mppcls INFO\033[0m: Arch : \n\033[32mppcls INFO\033[0m:     name : ResNet50\n", {"model": "ResNet50", "precision": "single"}),
    ("paddle-clas", "ppcls INFO: Arch : \nppcls INFO:     class_num : 1000\nppcls INFO: Optimizer : \nppcls INFO:     name : Momentum\n", {"precision": "single"}),
    ("ngc-pytorch-bert", "Namespace(config_file='/bert/bert_config_base.json', fp16=True)", {"precision": "amp", "model": "bert_base"}),
    ("paddle-clas", "ppcls INFO: AMP : \nppcls INFO:     use_amp : False\nppcls INFO:     level : O1\nppcls INFO: Arch : \n", {"precision": "single"}),
    ("paddle-clas", "LAUNCH INFO 2023-07-28 07:14:19,033 devices: 0,1,2\nLAUNCH INFO 2023-07-28 07:14:19,033 nnodes: 2\n", {"nodes": "2", "devices_per_node": "3"}),
    ("paddle-nlp", "gpus: 0,1,2,3\nips: 10.0.0.1,10.0.0.2\nNamespace(use_amp=True, use_pure_fp16=False, model_name_or_path='bert-base-uncased')", {"nodes": "2", "devices_per_node": "4", "precision": "amp"}),
    ("paddle-nlp", "run_pretrain.py --use_amp False --use_pure_fp16 True --max_steps 9\n", {"precision": "fp16"}),
    ("paddle-nlp", "run_pretrain.py --use_amp False --use_pure_fp16 False --max_steps 9\n", {"precision": "single"}),
    ("ngc-paddle-bert", "training_script_args: ['--bert-model=bert-large-uncased', '--amp', '--phase1']", {"precision": "amp", "model": "bert_large"}),
    ("tensorflow-resnet50", f"Using MirroredStrategy with devices ({MIRRORED})\n'train_dataset': {{'batch_size': 64, 'dtype': 'float32', 'use_per_replica_batch_size': True}}", {"nodes": "1", "devices_per_node": "4", "batch": "256", "precision": "single"}),
    ("tensorflow-resnet50", "runtime.num_gpus=4\n'train_dataset': {'batch_size': 64, 'use_per_replica_batch_size': True}", {"devices_per_node": "4"}),
    ("tensorflow-resnet50", "runtime.num_gpus=8 'batch_size': None, 'dtype': 'float16'", {"devices_per_node": "8", "precision": "fp16"}),
    ("tensorflow-bert", "--bert_config_file=/data/uncased_L-12_H-768_A-12/bert_config.json --num_gpus=4", {"devices_per_node": "4", "model": "bert_base"}),
    ("tensorflow-bert", "Using MirroredStrategy with devices ('/job:worker/task:0',)\nMultiWorkerMirroredStrategy with cluster_spec = {'worker': ['a:1', 'b:1']}, task_type = 'worker', task_id = 0, num_workers = 2, local_devices = ('/device:GPU:0', '/device:GPU:1'), communication", {"nodes": "2", "devices_per_node": "2"}),
    ("transformers", 'Model config BertConfig {\n  "hidden_size": 768,\n  "model_type": "bert",\n  "num_hidden_layers": 12,\n}\nTrainingArguments(bf16=False, fp16=True)', {"precision": "amp", "model": "bert_base"}),
    ("transformers", 'Model config BertConfig {\n  "_name_or_path": "bert-base-uncased",\n  "model_type": "bert",\n  "num_hidden_layers": 12\n}', {"model": "bert_base"}),
    ("transformers", '{"_name_or_path": "/data/bert-large-cased-whole-word-masking", "model_type": "bert"}', {"model": "bert_large"}),
    ("transformers", '{"_name_or_path": "prajjwal1/bert-tiny", "model_type": "bert"}', {}),
    ("transformers", '{"hidden_size": 768, "model_type": "roberta", "num_hidden_layers": 12}\nTrainingArguments(bf16=True, fp16=False)', {"precision": "bf16", "model": "roberta"}),
    ("lightning", "Using bfloat16 Automatic Mixed Precision (AMP)\nInitializing distributed: GLOBAL_RANK: 0, MEMBER: 1/16", {"devices": "16", "precision": "bf16"}),
    ("lightning", "Using 16bit native Automatic Mixed Precision (AMP)\nAll distributed processes registered. Starting with 2 processes", {"devices": "2", "precision": "amp"}),
    ("mllog", ':::MLLOG {"key": "global_batch_size", "value": 1024, "x": 1}\n:::MLLOG {"key": "d_batch_size", "value": 32}\n:::MLLOG {"key": "gradient_accumulation_steps", "value": 4}', {"devices": "8", "batch": "1024", "accumulation": "4"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "head", "wanted"), HEADS)
def test_what_the_head_of_a_log_tells(name, head, wanted):
    found = size.of_log(FORMS[name], head)
    for key in ("nodes", "devices_per_node", "devices", "precision", "model", "least"):
        assert found.get(key) == wanted.get(key) or (key == "model" and key not in wanted), key
    assert wanted.items() <= found.items()
    assert not ("use_per_replica" in head and "batch" in found and "batch" not in wanted)


def test_a_flag_that_the_log_contradicts_is_refused_with_its_line(tmp_path):
    lines = [line for line in oneflow() if "=" not in line]
    head = ["Running resnet50: num_gpu_per_node = 8, num_nodes = 4.", "use_fp16 = True", "batch_size_per_device = 32"]
    place = written(tmp_path, [*head, "gpu_num_per_node = 8", *lines], "logs", "a.log")
    said = refused(place, nodes="1", precision="fp32", batch="32")
    assert "--nnodes 1: line 1 of the log ('num_nodes = 4.') tells nodes 4" in said
    assert "--precision fp32: line 2 of the log ('use_fp16 = True') tells precision amp" in said
    assert "--batch-size" not in said
    assert "Leave out what the log tells itself" in said
    assert figures(place, nodes="4", precision="fp16")[read.OURS].precision == "amp"


@pytest.mark.parametrize(
    ("head", "sizes", "says"),
    [
        ("PARAMETER world_size : 16 ", {"nodes": "1", "devices_per_node": "8"}, "--nnodes 1 --nproc-per-node 8: line 1 of the log ('world_size : 16') tells 16 devices in all"),
        ("PARAMETER world_size : 1 ", {"devices_per_node": "8"}, "--nproc-per-node 8: line 1 of the log ('world_size : 1') tells 1"),
        ("PARAMETER amp : False ", {"precision": "amp"}, "tells precision fp32 or tf32"),
        ("PARAMETER arch : resnet50 ", {"model": "bert-base"}, "--model bert-base: line 1 of the log"),
    ],
)  # fmt: skip
def test_other_contradictions(head, sizes, says, tmp_path):
    lines = [dll(1, head), *CASES["ngc-pytorch-resnet50"][0]]
    assert says in refused(written(tmp_path, lines, "logs", "a.log"), **sizes)


def test_more_processes_print_than_devices_are_given(tmp_path):
    lines = [f"[1,{rank}]<stderr>:Compiling" for rank in range(16)]
    place = written(tmp_path, [*lines, *CASES["ngc-tensorflow1-bert"][0]], "logs", "a.log")
    sizes = {"nodes": "2", "batch": "32", "precision": "fp32"}
    assert "tells 16 devices or more" in refused(place, devices_per_node="4", **sizes)
    assert figures(place, devices_per_node="16", **sizes)[read.OURS].devices == 32


def test_single_precision_is_not_guessed_to_be_fp32(tmp_path):
    lines = [dll(1, "PARAMETER amp : False "), *CASES["ngc-pytorch-resnet50"][0]]
    mixed = written(tmp_path, lines, "4n8g", "a_amp.log")
    assert "it tells of precision that it is fp32 or tf32, its path amp; give --precision" in refused(mixed)
    place = written(tmp_path, lines, "4n8g", "a.log")
    assert "but it tells of precision that it is fp32 or tf32; give --precision" in refused(place)
    assert figures(place, precision="tf32")[read.OURS].precision == "tf32"


@pytest.mark.parametrize(
    ("name", "head", "asks", "size"),
    [
        ("ngc-pytorch-resnet50", dll(1, "PARAMETER batch_size : 32  world_size : 16 "), "tells nodes (of 16 devices in all); give --nnodes", {}),
        ("ngc-mxnet-dllogger", dll(1, "PARAMETER batch_size : 512 "), "tells nodes, devices per node; give --nnodes, --nproc-per-node", {"devices_per_node": "8"}),
    ],
)  # fmt: skip
def test_what_follows_from_other_sizes_is_not_asked_for(name, head, asks, size, tmp_path):
    (tmp_path / "a.log").write_text("\n".join([head, *CASES[name][0], ""]))
    assert refused(tmp_path / "a.log", precision="fp32").endswith(asks)
    made = figures(tmp_path / "a.log", precision="fp32", nodes="2", **size)[read.OURS]
    assert (made.nodes, made.devices, made.batch) == (2, 16, "32")


def test_a_model_that_nobody_tells_is_a_doubt(tmp_path):
    place = written(tmp_path, CASES["ngc-pytorch-bert"][0], "4n8g", "a.log")
    unknown = figures(place, precision="fp32")[read.OURS]
    assert unknown.model == ""
    assert "neither the log nor its path tells which model it is; --model names it" in unknown.doubt
    assert "which model" not in figures(place, precision="fp32", model="bert_base")[read.OURS].doubt


def test_what_the_log_sums_up_itself_is_held_against_the_sizes(tmp_path):
    lines = [
        dll(step, f"Training Epoch: 0 Training Iteration: {step}  average_loss : 9.1  learning_rate : 0.1 ")
        for step in range(1, 151)
    ]
    summary = dll(151, "training_sequences_per_second : 3100.5 sequences/s final_loss : 9.1 ")
    sized = {"nodes": "2", "batch": "32", "precision": "fp32"}
    place = written(tmp_path, [*lines, summary], "logs", "a.log")
    assert "its own" not in figures(place, devices_per_node="16", **sized)[read.OURS].doubt
    wrong = figures(place, devices_per_node="8", **sized)
    assert wrong[read.OURS].value == pytest.approx(512 * 100 / moments(25, 125), rel=1e-3)
    assert all("its own training_sequences_per_second is 3100.5, not 15" in one.doubt for one in wrong.values())


def test_a_rate_that_each_line_prints_is_held_against_the_sizes(tmp_path):
    place = written(tmp_path, CASES["ngc-pytorch-resnet50"][0], "logs", "a.log")
    sized = {"nodes": "1", "batch": "32", "precision": "fp32"}
    assert "its lines print" not in figures(place, devices_per_node="32", **sized)[read.OURS].doubt
    assert "its lines print 3100.5: 512" in figures(place, devices_per_node="16", **sized)[read.OURS].doubt


@pytest.mark.parametrize(
    ("head", "batch", "says"),
    [
        ("batch_size: 4096", "32", ""),
        ("batch_size: 4096\nin_tokens: True\nmax_seq_len: 512", "8", ""),
        ("batch_size: 32\nin_tokens: False\nmax_seq_len: 512", "32", ""),
        ("batch_size: 256\nin_tokens: False", "256", ""),
        ("batch_size: 32", "32", "its batch of 32 is taken to be rows: one has 128 tokens, and in_tokens is not told"),
    ],
)
def test_whether_paddlenlps_batch_is_of_tokens_or_of_rows(head, batch, says, tmp_path):
    place = written(tmp_path, [head, *CASES["paddle-bert"][0]], "4n8g", "bert_fp32.log")
    found = figures(place)[read.OURS]
    assert found.batch == batch
    assert says in found.doubt
    assert says or "its batch of" not in found.doubt


def test_a_batch_of_tokens_that_is_of_no_whole_rows(tmp_path):
    place = written(tmp_path, ["batch_size: 4100", *CASES["paddle-bert"][0]], "4n8g", "bert_fp32.log")
    assert "its batch of 4100 tokens is not that of whole rows of 128" in figures(place, batch="32")[read.OURS].doubt

# Two commands need nothing but python3 (3.11 or newer): `make compare` and `make test`. ARGS= passes options on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# what needs no framework, no second host, no engine of images and no hour
ALONE := not framework and not cluster and not images and not faults and not long and not pages
ARGS ?= --model bert --precision auto
RESNETS := resnet50,se_resnet50,se_resnext50
REFERENCE_ARGS := --frameworks pytorch --device cpu --model $(RESNETS),vgg16,vgg16_cifar,bert,gpt2_256,transformer,transformer_post

.PHONY: setup setup-dev compare doctor site verify reference test test-cluster test-horovod test-images check format types lint lock bench
.PHONY: test-deviations test-long test-faults test-pythons test-orders test-cpus test-arm test-dali test-pages bench-page bench-logs bench-site bench-containers bench-statistics gpu capabilities test-nullgpu nullgpu-table fuzz clean

setup: $(VENV)/ready

# With what tests and checks need.
setup-dev: $(VENV)/dev

compare: $(VENV)/ready
	$(BIN)/python -m dlperf.compare $(ARGS)

# What this machine is, which rows run on it, and what a comparison takes.
doctor: $(VENV)/ready
	$(BIN)/python -m dlperf.doctor

# Static pages over the published reports, in _site/: open _site/index.html. SITE_ARGS= passes options on.
site: $(VENV)/ready
	$(BIN)/python -m dlperf.site report/published $(SITE_ARGS)

# Proof that all frameworks do the same work. VERIFY_ARGS= passes options on.
verify: $(VENV)/ready
	$(BIN)/python -m dlperf.verify $(VERIFY_ARGS)

# After a change of models/: the published trajectories again, from one framework; then `make verify` must agree.
reference: $(VENV)/ready
	$(BIN)/python -m dlperf.verify -f mxnet --device cpu -m resnet50,vgg16 --publish --nproc-per-node 2 --gradient-compression 2bit
	$(BIN)/python -m dlperf.verify $(REFERENCE_ARGS),gpt2,gpt2_512,bert_large,bert_large_512,word2vec,word2vec_per_example,simnet_bow,ctr_dnn --publish
	$(BIN)/python -m dlperf.verify $(REFERENCE_ARGS) --publish --full-size
	$(BIN)/python -m dlperf.verify $(REFERENCE_ARGS) --publish --nproc-per-node 2
	for kind in fp16 powersgd dgc; do $(BIN)/python -m dlperf.verify -f pytorch --device cpu -m resnet50,vgg16 --publish --nproc-per-node 2 --gradient-compression $$kind || exit; done
	$(BIN)/python -m dlperf.verify -f numpy -m $(RESNETS),vgg16,vgg16_cifar,resnet_tiny,se_resnext_tiny,vgg_tiny,vgg_cifar_tiny,bert_base,bert_base_512,bert_tiny,gpt2_256,gpt2_512,gpt2,gpt_tiny,bert_large,bert_large_512,transformer,transformer_post,transformer_tiny,transformer_post_tiny -p bf16,fp16 --publish

test: $(VENV)/dev
	$(BIN)/python -m pytest $(TEST_ARGS)

# The tests on two hosts: namespaces of this machine, with sshd, Open MPI and Slurm, which it installs. Needs root.
test-cluster: $(VENV)/dev
	tests/cluster/install.sh
	$(BIN)/python -m pytest -m "cluster and not long" $(TEST_ARGS)

# Builds Horovod for PyTorch, TensorFlow and MXNet if it is not there, and tries it. One: TEST_ARGS="-k mxnet".
test-horovod: $(VENV)/dev
	$(BIN)/python -m pytest -v -m horovod tests/conformance/test_horovod.py $(TEST_ARGS)

# Builds the frameworks' images on a Docker engine of its own, and runs in them. Needs root; installs docker.io, iptables
# and debootstrap. DLPERF_TEST_DOCKER names a folder that keeps the images.
test-images: $(VENV)/dev
	tests/images/install.sh
	$(BIN)/python -m pytest -v -m "images or every_image" tests/images $(TEST_ARGS)

# Reports and a site in Chromium, light and dark, wide and narrow. Installs it, which needs root, and axe-core.
test-pages: $(VENV)/dev
	tests/pages/install.sh $(BIN)/python
	$(BIN)/python -m pytest -v -m pages tests/pages $(TEST_ARGS)

# Real workers with tiny models under CPUs that this machine is not, which qemu-user emulates. Installs it, which needs
# root. One: TEST_ARGS="-k 'Haswell and mxnet'".
test-cpus: $(VENV)/dev
	tests/cpus/install.sh
	$(BIN)/python -m pytest -v -rA -m cpus tests/cpus $(TEST_ARGS)

# The tiny models on Arm: in an arm64 Debian under qemu, beside this machine. Needs root; installs qemu-user-static and
# debootstrap. DLPERF_TEST_ARM names a folder that keeps Debian and the packages. One: TEST_ARGS="-k jax".
test-arm: $(VENV)/dev
	tests/arm/install.sh
	$(BIN)/python -m pytest -v -s -m arm tests/arm $(TEST_ARGS)

# The CUDA paths, counted on a GPU that does nothing. Makes environments of gigabytes, and needs gcc. TEST_ARGS="-k torch".
test-nullgpu: $(VENV)/dev
	$(BIN)/python -m pytest -v -m nullgpu tests/nullgpu $(TEST_ARGS)

# A row for each step that is counted there: kernels, waits, gigabytes, milliseconds at an H200's limits.
nullgpu-table: $(VENV)/dev
	$(BIN)/python -m pytest -q -s -m nullgpu_table tests/nullgpu $(TEST_ARGS)

# Each deliberate deviation in float32 and in bfloat16, as a row's own precision would see it, and each deviation of a
# measured run in a second framework. One: TEST_ARGS="-k GELU".
test-deviations: $(VENV)/dev
	$(BIN)/python -m pytest -v -m deviations tests/conformance $(TEST_ARGS)

# What takes minutes and is in `make test` in part: networks of full size in all frameworks, more models and ranks.
test-long: $(VENV)/dev
	$(BIN)/python -m pytest -v -m long $(TEST_ARGS)

# The campaign of faults, N times as long as in `make test`, from a seed, and N * 100,000 inputs to the readers; a table of
# what was tried and what failed. As root also full and read-only disks. One kind: TEST_ARGS="-k signals".
test-faults: N ?= 10
test-faults: SEED ?= 20261124
test-faults: $(VENV)/dev
	$(BIN)/python -m pytest -v -m faults tests/faults --faults $(N) --faults-seed $(SEED) $(TEST_ARGS)

# Inputs of libFuzzer's to what reads others' logs and tables, RUNS of each, in an environment with atheris of its own
# (Linux, Python 3.11 to 3.13). What it learned, and inputs that end in an exception, stay in _fuzz/.
fuzz: RUNS ?= 1000000
fuzz: $(VENV)/dev
	$(BIN)/uv venv --quiet --allow-existing --python $(BIN)/python _fuzz/venv
	$(BIN)/uv pip install --quiet --python _fuzz/venv/bin/python atheris pytest hypothesis -e .
	for what in tables logs; do _fuzz/venv/bin/python tests/fuzz/fuzz.py $$what _fuzz/$$what -runs=$(RUNS) \
	  -max_len=4096 -artifact_prefix=_fuzz/ || exit 1; done

# Every framework's pixels through DALI. Makes environments of gigabytes, and compiles TensorFlow's plug-in with make and
# g++. One: TEST_ARGS="-k pytorch".
test-dali: $(VENV)/dev
	$(BIN)/python -m pytest -v -m dali tests/conformance/test_pixels.py $(TEST_ARGS)

# The part to run before each commit, in less than a minute: format, lint, types, and the tests that start few processes,
# on all cores.
check: lint types
	$(BIN)/python -m pytest -n auto -m "$(ALONE) and not slow"

# All tests that need no framework, with every Python from 3.11 on that is found here, each with other settings: see
# tests/pythons.py.
test-pythons:
	$(PYTHON) tests/pythons.py -q -m "$(ALONE)" $(TEST_ARGS)

# The same tests in N random orders, until one fails. `make test TEST_ARGS=--randomly-seed=SEED` has the same order.
test-orders: N ?= 30
test-orders: $(VENV)/dev
	@for seed in $$(shuf -i 1-999999 -n $(N)); do \
	  echo "order of seed $$seed"; \
	  $(BIN)/python -m pytest -q --randomly-seed=$$seed -m "$(ALONE)" $(TEST_ARGS) || exit 1; \
	done

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Each adapter against the plain way to train the same network in its framework, on CPU. BENCH_ARGS= passes options on.
bench: $(VENV)/ready
	$(BIN)/python tests/bench/bench.py $(BENCH_ARGS)

# Seconds and memory that trees of others' logs take.
bench-logs: $(VENV)/ready
	$(BIN)/python tests/bench/logs.py $(BENCH_ARGS)

# How long a site of 100 archives takes; --published: of report/published.
bench-site: $(VENV)/ready
	$(BIN)/python tests/bench/site.py $(BENCH_ARGS)

# tests/bench/README.md from tests/bench/results/*.json: what `make bench` wrote on each machine that was met.
bench-page: $(VENV)/ready
	$(BIN)/python tests/bench/bench.py --page

# How often a report calls equal systems different, and misses a difference: simulated, with a fixed seed.
bench-statistics: $(VENV)/ready
	$(BIN)/python tests/bench/false_calls.py $(BENCH_ARGS)

# What this machine's GPU can tell, with the frameworks that $(PYTHON) has: no set-up, no package index. Each call ends
# within eight minutes; the next goes on. One step: GPU_ARGS=bert; more: GPU_ARGS=--help.
gpu:
	$(PYTHON) tests/bench/gpu.py $(GPU_ARGS)

# The GPUs that the CUDA environments have kernels for, read from their wheels: downloads 4 GB. One: ONLY=jax.
capabilities: $(VENV)/ready
	$(BIN)/python tests/capabilities.py $(ONLY)

# Each framework in its image and in its environment, interleaved. BENCH_ARGS= passes options on.
bench-containers: $(VENV)/ready
	$(BIN)/python tests/bench/containers.py $(BENCH_ARGS)

# mypy does not know setup.cfg's package_dir, so links lay the folders out as the package that they are; of adapters/ only
# what adapters share, since frameworks are not installed beside the core.
types: $(VENV)/dev
	@rm -rf .typing/dlperf && mkdir -p .typing/dlperf/adapters
	@cd .typing/dlperf && ln -s ../../dlperf/*.py $$(ls -d ../../dlperf/*/) ../../models ../../launchers ../../report ../../docker .
	@cd .typing/dlperf/adapters && ln -s ../../../adapters/*.py .
	cd .typing && ../$(BIN)/mypy --config-file ../pyproject.toml -p dlperf

# `ready` and `dev` are touched last, so that an interrupted set-up is never taken for a finished one.
$(VENV)/ready: setup.cfg pyproject.toml
	@[ "$$(uname -s)" = Linux ] || { echo "dlperf needs Linux; on macOS or Windows run it in a Linux container or" \
	  "virtual machine (on Windows: WSL 2)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dlperf needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/dev: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Each lock's first line is the command that makes it. Needs uv; `make lock ONLY=jax/requirements.cpu` makes one.
# PyTorch's lock for the CPU needs UV_INDEX=<PyTorch's CPU index>, and the others must not have it.
lock:
	@for lock in adapters/$(or $(ONLY),*/requirements.*).txt; do ( \
	  cd $$(dirname $$lock) && lock=$$(basename $$lock) && made=$$(sed -n '1s/^# Made by: //p' $$lock) && \
	  $$made --quiet --output-file $$lock.new && sed -i "1i # Made by: $$made" $$lock.new && mv $$lock.new $$lock \
	) || exit 1; done

clean:
	rm -rf $(VENV) _site _fuzz .typing build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

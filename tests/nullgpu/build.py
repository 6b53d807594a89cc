"""Make the null GPU for the PyTorch of the running Python: build.py FOLDER. Needs gcc and nm.

Every entry that PyTorch's libraries import or cuda.h declares, and that cudart.c or driver.c do not have, succeeds.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: called so often, for so little, that counting them says nothing
QUIET = """
    cudaGetLastError cudaPeekAtLastError cudaStreamQuery cudaEventRecord cudaEventRecordWithFlags cudaEventQuery
    cudaStreamWaitEvent cudaThreadExchangeStreamCaptureMode cublasSetStream_v2 cublasSetWorkspace_v2 cublasSetMathMode
    cublasSetPointerMode_v2 cudnnSetStream
"""


def defined(text):
    return set(re.findall(r"^(?:static )?[\w ]+?\**\s*\**(\w+)\([^;{]*\)\s*\{", text, re.MULTILINE))


def stub(name):
    body = "" if name in QUIET.split() else f'count("{name}"); '
    return f"int {name}(void) {{ {body}return 0; }}\n"


def runtime(libraries):
    """The source of the library that is loaded before all others."""
    imported = set()
    for library in libraries.glob("*.so*"):
        told = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True).stdout
        imported |= set(re.findall(r" U ((?:__cuda|cuda|cublas|cudnn)\w+)", told))
    text = (HERE / "cudart.c").read_text()
    missing = sorted(imported - defined(text))
    unknown = [name for name in missing if name.startswith("__cuda")]
    if unknown:
        raise SystemExit(f"this PyTorch imports {', '.join(unknown)}, which cudart.c must have")
    return text + "".join(map(stub, missing))


def driver(include):
    """The source of libcuda.so.1."""
    text = (HERE / "driver.c").read_text()
    declared = set(re.findall(r"\b(cu[A-Z]\w+)\s*\(", (include / "cuda.h").read_text()))
    declared |= {name + "_v2" for name in declared if not re.search(r"_v\d$", name)}
    return text + "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(declared - defined(text)))


def main(folder):
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])  # not imported: it asks for a driver
    include = sorted(torch.parent.glob("nvidia/*/include/cuda.h"))[-1].parent
    folder.mkdir(parents=True, exist_ok=True)
    made = [
        ("libnullcuda.so", runtime(torch / "lib"), ["-lpthread"]),
        ("libcuda.so.1", driver(include), ["-Wl,-soname,libcuda.so.1", "-ldl"]),
    ]
    for name, text, flags in made:
        command = ["gcc", "-O1", "-shared", "-fPIC", "-w", f"-I{include}", "-xc", "-", "-o", folder / name, *flags]
        subprocess.run(command, input=text, text=True, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

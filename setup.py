"""Build the one distribution, `tvmpass`; every package is named here."""

import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent

PACKAGES = [
    "tvmpass",
    "tvmpass.bench",
    "tvmpass.cli",
    "tvmpass.cli.explaining",
    "tvmpass.cli.tuning",
    "tvmpass.compile",
    "tvmpass.core",
    "tvmpass.core.analysis",
    "tvmpass.cost",
    "tvmpass.frontends",
    "tvmpass.frontends.relay",
    "tvmpass.frontends.relay.operators",
    "tvmpass.testing",
    "tvmpass.testing.cuda_emulator",
    "tvmpass.testing.relay",
    "tvmpass.tune",
    "relay_passes",
    "relay_passes.fusion",
    "relay_passes.layout",
    "relay_passes.recognize",
    "relay_passes.simplify",
    "tir_passes",
    "schedules",
    "schedules.cpu",
    "schedules.cuda",
    # Data without code: it has no __init__.py, is never imported, and is found
    # as the sibling folder of the installed tvmpass package.
    "tuning_logs",
]

# tvm-ffi 0.1.15 has another ABI than this TVM was built for: processes crash.
TVM = ["apache-tvm==0.27.0.post1", "apache-tvm-ffi>=0.1.14.post0,<0.1.15"]

# The plain xgboost wheel pulls in NVIDIA's NCCL, some 400 MB that nothing here
# uses; the CPU-only wheel holds the same module and exists for x86-64 only.
ON_X86_LINUX = "sys_platform == 'linux' and platform_machine == 'x86_64'"
XGBOOST = [
    f"xgboost-cpu>=2.1,<4; {ON_X86_LINUX}",
    "xgboost>=2.1,<4; sys_platform != 'linux' or platform_machine != 'x86_64'",
]

# nvcc itself brings nvvm, crt and the runtime; libcudart is also what runs an
# artifact, and CUDA's 16-bit float headers include one of cccl.
CUDA = ["nvidia-cuda-nvcc>=13,<14", "nvidia-cuda-runtime>=13,<14", "nvidia-cuda-cccl>=13,<14"]

# What TVM's own tracker and RPC servers need.
RPC = ["tornado>=6", "psutil>=5.9", "cloudpickle>=3"]

BENCH = ["onnxruntime>=1.20", "pillow>=10"]
TEST = ["pytest>=8", "pytest-xdist>=3.5", "pytest-timeout>=2.3", "hypothesis>=6.100", *BENCH, *RPC]

EXTRAS = {
    "cuda": CUDA,
    "torch": ["torch>=2.6"],
    "bench": BENCH,
    "rpc": RPC,
    # All tests: those of the CUDA target compile with nvcc. `dev` runs the fast ones, without it.
    "test": [*TEST, *CUDA],
    "dev": [*TEST, "ruff>=0.8", "mypy>=1.13"],
}

version = re.search(r'VERSION = "([^"]+)"', (HERE / "tvmpass" / "version.py").read_text()).group(1)

setup(
    name="tvmpass",
    version=version,
    description="TVM passes written as rules, judged before they are applied and explained afterwards",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    packages=PACKAGES,
    package_data={
        "tvmpass": ["py.typed"],
        "tvmpass.cli.explaining": ["*.j2"],
        "tvmpass.frontends.relay": ["schema.json"],
        "tvmpass.cli.tuning": ["*.j2"],
        "tvmpass.testing.cuda_emulator": ["shim/*.h", "runtime/*.h", "runtime/*.cc"],
        "tuning_logs": ["*.jsonl", "*.jsonl.gz", "*.json", "*.md"],
    },
    include_package_data=False,
    install_requires=[
        *TVM,
        *XGBOOST,
        "numpy>=1.26",
        "onnx>=1.17",
        "onnxslim>=0.1.60",
        "click>=8.1",
        "rich>=13",
        "jinja2>=3.1",
    ],
    extras_require=EXTRAS,
    entry_points={
        # The group "tvmpass.rules" is for rules of other distributions; our own
        # come from tvmpass/catalogue.py, in the order of its tuples.
        "console_scripts": ["tvmpass = tvmpass.cli:main"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Software Development :: Compilers",
    ],
)

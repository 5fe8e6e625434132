"""The points of the CUDA target, by letter."""

from __future__ import annotations

from . import cuda_bad, cuda_builds, cuda_bundle, cuda_corpus, cuda_kernels, cuda_sim, cuda_tensor

POINTS = {
    "A": ("models and graphs for two architectures, in a clean venv", cuda_builds.point),
    "B": ("every schedule family in the emulator, and mutations", cuda_kernels.point),
    "C": ("fp16 matmul + bias + gelu: tensor cores, cp.async, one kernel, no spills", cuda_tensor.point),
    "D": ("what cannot work: one line, the exit code, nothing half-written", cuda_bad.point),
    "E": ("records of a simulated device change the decisions", cuda_sim.point),
    "F": ("the GPU host's command, rehearsed up to the device", cuda_bundle.point),
    "G": ("whole graphs of the corpus in the emulator", cuda_corpus.point),
}

"""Run emitted CUDA source on the CPU."""

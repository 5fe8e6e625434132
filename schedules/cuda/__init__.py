"""Schedules for CUDA devices: plain functions, no search.

Those of products change a `tvm.s_tir.Schedule` block by block; all others write a
kernel anew as launches over rows (`parts`, `group`), because what threads share
by shuffles and keep in registers cannot be said in schedule primitives.
"""

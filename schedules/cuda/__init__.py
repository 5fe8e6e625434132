"""Schedules for CUDA devices: plain functions on a `tvm.s_tir.Schedule`, no search.

They are given block names and numbers, and bind loops to blocks and threads.
"""

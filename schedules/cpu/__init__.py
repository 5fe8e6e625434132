"""Schedules for CPUs.

Functions that annotate or move loops take an `s_tir.Schedule` and change it;
those that rebuild a kernel in tiles (`tile`, `rows`, `injective`) map a PrimFunc to a
new one, because tiles that overlap cannot be said in schedule primitives.
"""

"""Random graphs, cut into kernels and measured: the parts of `scripts/collect_cpu.py`."""

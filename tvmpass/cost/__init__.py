"""Predict how long a kernel takes, and say nothing where nothing is known.

`features` describes a scheduled kernel, `analytic` prices it from nominal
rates, `learned` from measured records (`dataset`, `training`); the learned
model abstains outside what it has seen.  All prices are microseconds of one
kernel call from the virtual machine, launch cost included.
"""

from __future__ import annotations

import importlib

_MODULES = ("analytic", "dataset", "device", "families", "features", "graph_features", "learned", "training")


def __getattr__(name: str):
    if name == "train":
        return importlib.import_module(".training", __name__).train
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Read the model that a command names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def load_model(
    model: str, shapes: Mapping[str, Sequence[int | str]], params: str | None
) -> tuple[Any, dict[str, Any] | None]:
    """Return a model as a Relax module, and the parameters that are still to be bound.

    Relay programs take the parameters of ``--params`` themselves; those of other
    formats are bound to inputs by name when the module is built.
    """
    import tvmpass
    from tvmpass.frontends.formats import RELAY_FORMATS, model_format

    if params is None or model_format(model) in RELAY_FORMATS:
        return tvmpass.load(model, shapes=shapes or None, params=params), None
    from tvmpass.frontends.relay.params import read_params

    mod = tvmpass.load(model, shapes=shapes or None)
    return mod, read_params(params)

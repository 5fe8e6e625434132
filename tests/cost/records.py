"""Record files whose truth is known, for the tests of training."""

import json

import numpy as np
import tvm

from tvmpass.cost.dataset import header
from tvmpass.cost.features import FEATURE_NAMES, INDEX

CLASS = "x86-64-v3-t1"


def vector(outputs: float, curves: float, stores: float | None = None, noise: float = 0.0) -> np.ndarray:
    """Features of an elementwise kernel: sizes, curves evaluated, everything else at rest."""
    amounts = dict.fromkeys(FEATURE_NAMES, 0.0)
    amounts |= {"bytes_in": 4 * outputs, "bytes_out": 4 * outputs, "largest_bytes": 4 * outputs}
    amounts |= {"outputs": outputs, "load.unit.v": outputs, "store.unit.v": outputs, "exp.v": curves}
    amounts |= {"iterations": outputs / 8 + noise, "parallel": 1.0, "lanes": 8.0, "tile": 1.0, "depth": 1.0}
    x = np.array([np.log1p(amounts[n]) for n in FEATURE_NAMES], dtype=np.float32)
    x[INDEX["vector_share"]] = 1.0
    return x


def time_us(x: np.ndarray) -> float:
    """The known truth: a nanosecond per output, four per curve."""
    outputs, curves = np.expm1(x[INDEX["outputs"]]), np.expm1(x[INDEX["exp.v"]])
    return float((outputs + 4.0 * curves) / 1000.0 + 0.5)


def kernel_line(key: str, x: np.ndarray, kind: str = "elementwise", **changes) -> dict:
    return {
        "key": f"{key}-recipe",
        "kernel_key": key,
        "kind": kind,
        "recipe": "vectorize-inner",
        "trace": None,
        "recipe_version": 1,
        "role": "train",
        "status": "ok",
        "median_us": round(time_us(x), 4),
        "samples_us": [],
        "candidate0_us": None,
        "features": [round(float(v), 3) for v in x],
        **changes,
    }


def write(path, lines, device_class: str = CLASS):
    """Write a record file; a line that is a text is written as it is."""
    head = header(device_class, tvm.__version__, "0.0.0")
    texts = [line if isinstance(line, str) else json.dumps(line) for line in [head, *lines]]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def synthetic(graphs: int = 150, seed: int = 0) -> list[dict]:
    """Pairs of kernels and their fusion: it saves a pass, or computes curves again."""
    rng = np.random.default_rng(seed)
    lines = []
    for g in range(graphs):
        outputs = float(np.exp(rng.uniform(np.log(500), np.log(200_000))))
        small = outputs / float(rng.choice([1, 1, 4, 16, 64]))
        parts = [vector(small, small), vector(outputs, 0.0, noise=rng.uniform(0, 9))]
        fused = vector(outputs, outputs, noise=rng.uniform(0, 9))
        keys = [f"g{g}-a", f"g{g}-b", f"g{g}-f"]
        for key, x in zip(keys, [*parts, fused]):
            lines.append(kernel_line(key, x))
        times = [time_us(x) for x in (*parts, fused)]
        base = {"group_key": f"g{g}"}
        lines.append({**base, "alternative": "off", "kernel_keys": keys[:2], "median_us": sum(times[:2])})
        lines.append({**base, "alternative": "on", "kernel_keys": keys[2:], "median_us": times[2]})
    return lines

"""Build an ONNX model, run it for several batch sizes, export it, ask why.

python examples/build_onnx.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tvmpass

MODEL = Path(__file__).parent / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def main() -> None:
    mod = tvmpass.load(MODEL, shapes={"x": ("n", 3, 48, 192)})
    library = tvmpass.build(mod, target="llvm")

    for n in (1, 3):
        images = np.random.default_rng(n).standard_normal((n, 3, 48, 192)).astype("float32")
        (probabilities,) = library.run(x=images)
        print(f"batch {n}: probabilities of 0 and 180 degrees\n{probabilities.round(3)}")

    for rule, row in library.report.rules.items():
        if row["matched"]:
            print(f"{rule}: matched {row['matched']}, applied {row['applied']}, not legal {row['illegal']}")
    refused = next(d for d in library.report.decisions if d.refusal)
    print(f"for example, {refused.rule} at {', '.join(refused.origin)}: {refused.refusal.text()}")

    library.export("cls.so")
    again = tvmpass.load_artifact("cls.so")
    (same,) = again.run(x=images)
    print("loaded again, the same result:", bool(np.array_equal(same, probabilities)))


if __name__ == "__main__":
    main()

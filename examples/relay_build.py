"""Build a Relay program: the script of old days, and the same work today.

python examples/relay_build.py

With TVM up to 0.19 it read:

    mod = relay.fromtext(open("net.relay").read())
    params = relay.load_param_dict(open("net.params", "rb").read())
    with tvm.transform.PassContext(opt_level=3, config={"relay.FuseOps.max_depth": 10}):
        lib = relay.build(mod, target="llvm", params=params)
    lib.export_library("net.so")

    module = graph_executor.GraphModule(tvm.runtime.load_module("net.so")["default"](tvm.cpu()))
    module.set_input("data", image)
    module.run()
    result = module.get_output(0).numpy()

`main` does the same with tvmpass and leaves net.so in the current folder; no old TVM
is needed.  docs/migration.md has the other calls of old scripts.
"""

from __future__ import annotations

import numpy as np

import tvmpass

NET = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 16, 16), float32], %weight: Tensor[(8, 3, 3, 3), float32],
          %gamma: Tensor[(8), float32], %beta: Tensor[(8), float32],
          %mean: Tensor[(8), float32], %var: Tensor[(8), float32],
          %dense: Tensor[(10, 8), float32]) -> Tensor[(1, 10), float32] {
  %0 = nn.conv2d(%data, %weight, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %gamma, %beta, %mean, %var);
  %2 = %1.0;
  %3 = nn.relu(%2);
  %4 = nn.global_avg_pool2d(%3);
  %5 = nn.batch_flatten(%4);
  %6 = nn.dense(%5, %dense, units=10);
  nn.softmax(%6)
}
"""


def parameters() -> dict[str, np.ndarray]:
    """Return weights by name; a file of relay.save_param_dict would do as well."""
    generator = np.random.default_rng(0)
    shapes = {"weight": (8, 3, 3, 3), "gamma": (8,), "beta": (8,), "mean": (8,), "dense": (10, 8)}
    arrays = {name: generator.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return {**arrays, "var": generator.random(8, dtype="float32") + 0.5}


def main() -> None:
    with tvmpass.PassContext(opt_level=3, config={"tvmpass.fusion": "auto"}):
        mod = tvmpass.load(NET, params=parameters())  # or tvmpass.load("net.relay", params="net.params")
        lib = tvmpass.build(mod, target="llvm")
    lib.export("net.so")

    image = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype("float32")
    (result,) = tvmpass.load_artifact("net.so").run(data=image)
    print("probabilities:", result.round(3))
    for rule, row in lib.report.rules.items():
        if row["applied"]:
            print(f"{rule}: applied {row['applied']} of {row['matched']}")
    for kernel in lib.report.kernels:
        print(f"kernel {kernel.name}, from {', '.join(kernel.origin)}")


if __name__ == "__main__":
    main()

"""D: the rules fire on converted nets: batch norms fold, epilogues fuse, layouts leave no transpose."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from .bench import Bench, Verdict
from .relay_nets import load, spread_difference, unoptimised, values

FOLDED, SCALED, CONVOLUTIONS, PRODUCTS = 9, 10, 21, 1
LONE = re.compile(r"(fused_)?(add|multiply|relu|permute_dims|transpose)\d*(_\d+)?")


def point(bench: Bench) -> Verdict:
    folder = str(bench.shared / "relay_nets")
    work = {
        "resnet18": lambda: bench.child("relay_rules:pre_activation", folder, timeout=600),
        "post-activation": lambda: bench.child("relay_rules:post_activation", timeout=600),
    }
    results = bench.items("D", work, lambda name: work[name]())
    bad = [
        f"{n}: {r.get('error') or ', '.join(r['wrong'])}" for n, r in results.items() if r.get("wrong", ["?"])
    ]
    shown = results.get("resnet18", {})
    text = "; ".join(bad) or (
        f"resnet18: {shown.get('folded')} batch norms folded, {shown.get('scaled')} scale-and-shift in "
        f"kernels with their ReLU, {shown.get('kinds', {}).get('conv')} convolutions, no transpose; "
        f"post-activation: {results.get('post-activation', {}).get('fused')} conv+bn+relu of one kernel each"
    )
    return Verdict(not bad, text, results)


def optimized(mod) -> tuple[dict[str, Any], Counter, Counter]:
    """Return the report, and how often a kernel is called by kind and by name."""
    import tvmpass
    from tvmpass.testing.graphs import kernel_calls

    made, report = tvmpass.optimize(mod, target="llvm")
    document = report.to_json()
    kinds = {kernel["name"]: kernel["kind"] for kernel in document["kernels"]}
    names = kernel_calls(made)
    by_kind: Counter = Counter()
    for name, count in names.items():
        by_kind[kinds.get(name, "unknown")] += count
    return document, by_kind, names


def applied(document: dict[str, Any], rule: str) -> int:
    return document["rules"].get(rule, {}).get("applied", 0)


def groups(document: dict[str, Any]) -> list[str]:
    """Return the operators of every fused kernel, a line of words each, one per call."""
    found = (d.get("evidence") or {} for d in document["decisions"] if d["outcome"] == "applied")
    return [evidence["candidate"] for evidence in found if "candidate" in evidence]


def pre_activation(folder: str) -> dict[str, Any]:
    """Count what became of the 19 batch norms, the convolutions and the layouts of resnet18."""
    mod, _ = load(folder, "resnet18")
    document, kinds, names = optimized(mod)
    scaled = [g for g in groups(document) if re.search(r"multiply \+ add\b.*\brelu", g)]
    lone = sorted(name for name in names if LONE.fullmatch(name))
    checks = {
        "batch norms folded": applied(document, "fold-batch-norm-into-conv") == FOLDED,
        "batch norms lowered": applied(document, "lower-batch-norm") == SCALED,
        "scale-and-shift with its ReLU": len(scaled) == SCALED,
        "convolutions": kinds["conv"] == CONVOLUTIONS,
        "products": kinds["matmul"] == PRODUCTS,
        "transposes": kinds["movement"] == 0 and not any("transpose" in name for name in names),
        "kernels of one bias, scale or ReLU": not lone,
    }
    return {
        "wrong": [name for name, good in checks.items() if not good],
        "folded": applied(document, "fold-batch-norm-into-conv"),
        "scaled": len(scaled),
        "kinds": dict(kinds),
        "kernels": dict(names),
    }


def post_activation() -> dict[str, Any]:
    """Check that each conv+bn+relu of a net with shortcuts is one kernel, and that it computes the same."""
    import tvmpass
    from tvmpass.frontends.relay.load import load_relay
    from tvmpass.frontends.relay.parser import parse

    text = post_activation_net()
    drawn = values(parse(text, "post-activation"))
    inputs = {"data": drawn.pop("data")}
    mod = load_relay(text, params=drawn)
    document, kinds, names = optimized(mod)
    convolutions = text.count("nn.conv2d")
    fused = [g for g in groups(document) if re.search(r"conv2d \+ add( \+ add)? \+ relu$", g)]
    shortcuts = [g for g in groups(document) if g.endswith("conv2d + add")]
    found = list(tvmpass.build(mod, target="llvm").run(inputs))
    difference = max(spread_difference(a, b) for a, b in zip(found, unoptimised(mod, inputs)))
    checks = {
        "batch norms folded": applied(document, "fold-batch-norm-into-conv") == text.count("nn.batch_norm"),
        "conv+bn+relu of one kernel": len(fused) == text.count("nn.relu"),
        "convolutions": kinds["conv"] == convolutions == len(fused) + len(shortcuts),
        "elementwise kernels": kinds["elementwise"] == 0,
        "transposes": kinds["movement"] == 0,
        "results": difference <= 1e-4,
    }
    return {
        "wrong": [name for name, good in checks.items() if not good],
        "fused": len(fused),
        "shortcuts": len(shortcuts),
        "difference": difference,
        "kinds": dict(kinds),
        "kernels": dict(names),
    }


class _Text:
    """Relay text in the making."""

    def __init__(self) -> None:
        self.params: list[str] = []
        self.lines: list[str] = []

    def param(self, name: str, *shape: int) -> str:
        self.params.append(f"%{name}: Tensor[({', '.join(map(str, shape))}), float32]")
        return f"%{name}"

    def line(self, call: str) -> str:
        self.lines.append(f"  %{len(self.lines)} = {call};")
        return f"%{len(self.lines) - 1}"

    def conv_bn(self, name: str, data: str, inputs: int, outputs: int, size: int, stride: int) -> str:
        weight, pad = self.param(f"{name}_weight", outputs, inputs, size, size), size // 2
        result = self.line(
            f"nn.conv2d({data}, {weight}, strides=[{stride}, {stride}], "
            f"padding=[{pad}, {pad}, {pad}, {pad}], channels={outputs}, kernel_size=[{size}, {size}])"
        )
        parts = [self.param(f"{name}_{part}", outputs) for part in ("gamma", "beta", "mean", "var")]
        return self.line(f"nn.batch_norm({result}, {', '.join(parts)})") + ".0"


def post_activation_net(size: int = 112, widths: tuple[int, ...] = (32, 64, 128)) -> str:
    """Return a net of residual blocks in which every activation follows its batch norm."""
    text = _Text()
    data = text.param("data", 1, 3, size, size)
    x = text.line(f"nn.relu({text.conv_bn('stem', data, 3, widths[0], 3, 2)})")
    inputs = widths[0]
    for index, width in enumerate(widths):
        stride = 1 if index == 0 else 2
        y = text.line(f"nn.relu({text.conv_bn(f'b{index}_a', x, inputs, width, 3, stride)})")
        y = text.conv_bn(f"b{index}_b", y, width, width, 3, 1)
        if inputs != width or stride != 1:
            x = text.conv_bn(f"b{index}_short", x, inputs, width, 1, stride)
        x = text.line(f"nn.relu({text.line(f'add({y}, {x})')})")
        inputs = width
    x = text.line(f"nn.batch_flatten({text.line(f'nn.global_avg_pool2d({x})')})")
    x = f"nn.dense({x}, {text.param('fc_weight', 10, inputs)}, units=10)"
    head = f'#[version = "0.0.5"]\ndef @main({", ".join(text.params)}) {{\n'
    return head + "\n".join(text.lines) + f"\n  {x}\n}}\n"

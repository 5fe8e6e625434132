"""tvmpass inside TVM's own calls."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, te, tirx

import tvmpass
from tvmpass.compile.target import parse_target
from tvmpass.testing.graphs import graph

R = relax.op
X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")


def mod():
    w = relax.const(np.random.default_rng(1).standard_normal((8, 8)).astype("float32"))
    return graph(lambda x: R.nn.relu(R.add(R.matmul(x, w), x)), ((4, 8),))


def weight():
    return np.random.default_rng(1).standard_normal((8, 8)).astype("float32")


def check(executable):
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(X)).numpy()
    want = np.maximum(X @ weight() + X, 0)
    np.testing.assert_allclose(found, want, rtol=0, atol=2e-5 * want.max())


def kernel_names(executable) -> str:
    return executable.as_text()


@pytest.mark.parametrize("target", ["llvm", None])
def test_pipeline_inside_tvm_compile(target):
    executable = tvm.compile(mod(), tvm.target.Target("llvm"), relax_pipeline=tvmpass.pipeline(target))
    check(executable)
    assert "fused_matmul_add_relu" in kernel_names(executable)


def test_pipeline_reads_the_context_where_it_is_made():
    with tvmpass.PassContext(config={"tvmpass.fusion": "never"}):
        made = tvmpass.pipeline("llvm")
    executable = tvm.compile(mod(), tvm.target.Target("llvm"), relax_pipeline=made)
    check(executable)
    assert "fused_" not in kernel_names(executable)


def test_pipeline_takes_rules_and_without():
    made = tvmpass.pipeline("llvm", without=("grow-epilogue", "fuse-elementwise-chain"))
    executable = tvm.compile(mod(), tvm.target.Target("llvm"), relax_pipeline=made)
    check(executable)
    assert "fused_" not in kernel_names(executable)


def test_pipeline_without_any_target_says_so():
    with pytest.raises(Exception, match="no target given and none in scope"):
        tvmpass.pipeline()(mod())


def test_the_registered_pipeline():
    executable = tvm.compile(mod(), tvm.target.Target("llvm"), relax_pipeline="tvmpass")
    check(executable)
    with tvm.target.Target("llvm"):
        assert relax.get_pipeline("tvmpass") is not None


@pytest.mark.parametrize(
    "first, second",
    [
        ("import tvm", "import tvmpass"),
        ("import tvmpass", "import tvm"),
        ("import tvmpass", "from tvm import relax"),
    ],
)
def test_registration_in_either_import_order(first, second):
    script = (
        f"{first}\n{second}\n"
        "import tvm\n"
        "from tvm import relax\n"
        "from tvm.tirx import compilation_pipeline\n"
        "assert relax.get_pipeline('tvmpass') is not None\n"
        "assert len(compilation_pipeline.get_tir_pipeline('tvmpass')) == 3\n"
        "import importlib, tvmpass\n"
        "importlib.reload(tvmpass)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_tvmpass_alone_imports_no_tvm():
    script = "import sys, tvmpass; print('tvm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def kernel():
    a = te.placeholder((64, 32), name="a")
    b = te.placeholder((32, 48), name="b")
    k = te.reduce_axis((0, 32), name="k")
    c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")


def test_the_tir_pipeline_schedules_plain_kernels():
    plain = tvm.IRModule({"main": kernel()})
    built = tvm.compile(plain, tvm.target.Target("llvm"), tir_pipeline="tvmpass")
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((64, 32)).astype("float32"), rng.standard_normal((32, 48)).astype("float32")
    c = tvm.runtime.tensor(np.zeros((64, 48), "float32"))
    built["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=0, atol=1e-4)


def test_apply_recipe_changes_kernels_and_names_refusals():
    plain = tvm.IRModule({"main": kernel()})
    _, report = tvmpass.optimize(graph(lambda x, y: R.matmul(x, y), ((64, 32),), ((32, 48),)))
    recipe = report.kernels[0].schedule.removeprefix("library:")
    made = tvmpass.apply_recipe(plain, recipe)
    assert isinstance(made["main"], tirx.PrimFunc)
    assert not tvm_ffi.structural_equal(made, plain)
    with pytest.raises(tvmpass.TvmpassError):
        tvmpass.apply_recipe(plain, "no-such-step")


@pytest.mark.parametrize("how", ["build", "pipeline"])
def test_overlapping_tiles_are_not_written_in_place(how):
    """An odd row is tiled with overlap; TVM's StorageRewrite computed tanh of the tanh there."""
    mod = graph(lambda x: relax.op.nn.softmax(relax.op.tanh(x), 1), ((3, 5),))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    if how == "build":
        found = tvmpass.build(mod, "llvm").run(x=x)[0]
    else:
        target = parse_target("llvm", 1)
        library = tvm.compile(mod, target, relax_pipeline=tvmpass.pipeline(target))
        found = relax.VirtualMachine(library, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    e = np.exp(np.tanh(x.astype("float64")))
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-5, atol=0)

"""Artifacts: run, export, load elsewhere, and refuse what does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

import tvmpass
from tvmpass.compile import artifact as artifacts
from tvmpass.compile import target as targets
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.testing.graphs import graph, named

R = relax.op


def model():
    """Two inputs with a common symbolic dim, two outputs."""

    def body(x, y):
        total = named("sum", R.add(x, y))
        return named("act", R.nn.relu(total)), named("rows", R.sum(total, axis=1))

    return graph(body, (("n", 4),), (("n", 4),))


@pytest.fixture(scope="module")
def lib():
    return tvmpass.build(model())


@pytest.fixture(scope="module")
def exported(lib, tmp_path_factory):
    path = tmp_path_factory.mktemp("artifact") / "model.so"
    lib.export(path)
    return path


def inputs(n: int = 3):
    rng = np.random.default_rng(n)
    return {name: rng.standard_normal((n, 4)).astype("float32") for name in ("x", "y")}


def check(lib, given):
    first, second = lib.run(given)
    total = given["x"] + given["y"]
    np.testing.assert_allclose(first, np.maximum(total, 0), rtol=1e-6)
    np.testing.assert_allclose(second, total.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 7, 0])
def test_runs_for_every_value_of_a_symbolic_dim(lib, n):
    check(lib, inputs(n))


def test_an_exported_file_is_explained_as_its_report_is(lib, exported):
    from tvmpass.cli.explaining.reading import read_report

    assert read_report(str(exported)) == json.loads(json.dumps(lib.report.to_json()))


def test_says_what_it_takes_and_gives(lib):
    assert [(i.name, i.shape, i.dtype) for i in lib.input_info] == [
        ("x", ("n", 4), "float32"),
        ("y", ("n", 4), "float32"),
    ]
    assert lib.output_names == ("output0", "output1")


def test_arrays_may_be_given_by_name_and_need_not_be_contiguous(lib):
    wide = np.random.default_rng(0).standard_normal((3, 8)).astype("float32")
    given = {"x": wide[:, ::2], "y": np.asfortranarray(wide[:, :4])}
    assert not given["x"].flags.c_contiguous
    check(lib, given)
    np.testing.assert_array_equal(lib.run(**given)[0], lib.run(given)[0])
    swapped = {name: array.astype(">f4") for name, array in given.items()}
    np.testing.assert_array_equal(lib.run(swapped)[0], lib.run(given)[0])


@pytest.mark.parametrize(
    "change, match",
    [
        ({"x": np.ones((3, 4))}, "input 'x' has dtype float64, the model needs float32"),
        ({"x": np.ones((3, 5), "float32")}, "input 'x' has shape 3x5, the model needs nx4"),
        ({"x": np.ones(4, "float32")}, "input 'x' has shape 4, the model needs nx4"),
        ({"x": np.ones((2, 4), "float32")}, "dim 'n' is 2 in input 'x' but 3 in 'y'"),
        ({"z": np.ones((3, 4), "float32")}, "unknown input 'z'.*inputs are: x, y"),
    ],
)
def test_wrong_inputs_are_one_clear_line(lib, change, match):
    with pytest.raises(UsageError, match=match):
        lib.run({**inputs(), **change})


def test_missing_inputs_are_listed(lib):
    with pytest.raises(UsageError, match="missing inputs: x, y"):
        lib.run({})


def test_a_virtual_machine_of_ones_own(lib):
    given = inputs()
    machine = lib.vm("cpu")
    assert isinstance(machine, relax.VirtualMachine)
    result = machine["main"](*[tvm.runtime.tensor(given[n]) for n in ("x", "y")])
    np.testing.assert_array_equal(result[0].numpy(), lib.run(given)[0])


def test_loads_in_an_empty_folder_with_its_report(lib, exported):
    loaded = tvmpass.load_artifact(exported)
    check(loaded, inputs())
    assert loaded.report.dumps() == lib.report.dumps()
    assert loaded.report.rules == lib.report.rules
    assert loaded.input_info == lib.input_info
    assert loaded.output_names == lib.output_names


def test_loads_in_another_process_elsewhere(lib, exported, tmp_path):
    script = (
        "import sys, numpy as np, tvmpass\n"
        "lib = tvmpass.load_artifact(sys.argv[1])\n"
        "x = np.arange(8, dtype='float32').reshape(2, 4)\n"
        "print(*lib.run(x=x, y=x)[1], len(lib.report.kernels))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(exported)], cwd=tmp_path, text=True, capture_output=True
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == ["12.0", "44.0", str(len(lib.report.kernels))]
    assert found.stderr == ""


def test_exporting_twice_gives_equal_files_and_leaves_nothing_else(lib, exported, tmp_path):
    lib.export(tmp_path / "again.so")
    assert [p.name for p in tmp_path.iterdir()] == ["again.so"]


def test_a_loaded_artifact_is_copied_not_exported(exported, tmp_path):
    with pytest.raises(TvmpassError, match="copy that file"):
        tvmpass.load_artifact(exported).export(tmp_path / "copy.so")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused_before_it_is_loaded(exported, tmp_path, share):
    content = exported.read_bytes()
    path = tmp_path / "cut.so"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(TvmpassError, match="cut short|not a tvmpass artifact|damaged"):
        tvmpass.load_artifact(path)


def elf_without_header(exported) -> bytes:
    return exported.read_bytes().replace(artifacts._MAGIC, b"x" * len(artifacts._MAGIC))


def damaged_header(exported) -> bytes:
    content = exported.read_bytes()
    at = content.rfind(artifacts._MAGIC) + len(artifacts._MAGIC) + 20
    return content[:at] + b"\xff" * 16 + content[at + 16 :]


@pytest.mark.parametrize(
    "content, match",
    [
        (lambda _: b"this is text\n", "not a tvmpass artifact"),
        (lambda _: b"", "cannot read.*empty"),
        (lambda _: b"text" + artifacts._MAGIC + bytes(8), "not a shared library"),
        (elf_without_header, "not a tvmpass artifact"),
        (damaged_header, "header is damaged"),
    ],
)
def test_what_is_no_artifact_is_refused(exported, tmp_path, content, match):
    path = tmp_path / "model.so"
    path.write_bytes(content(exported))
    with pytest.raises(TvmpassError, match=match) as error:
        tvmpass.load_artifact(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m["inputs"][0].update(dtype="float99"), "float99"),
        (lambda m: m["inputs"][0].update(shape=[-2]), "dimension -2"),
        (lambda m: m["inputs"][0].update(shape=["\n"]), "dimension"),
        (lambda m: m.update(kind="nope"), "unknown kind of target 'nope'"),
        (lambda m: m.update(kind="cuda", target="cuda:nope"), "'nope' is not the name"),
        (lambda m: m.update(kind="cuda", target=None), "not the name"),
    ],
)
def test_a_header_that_cannot_be_true_is_refused(lib, exported, monkeypatch, change, match):
    header = {"metadata": lib.metadata.to_json(), "report": lib.report.to_json()}
    header = json.loads(json.dumps(header))
    change(header["metadata"])
    monkeypatch.setattr(artifacts, "_read_metadata", lambda path: header)
    with pytest.raises(TvmpassError, match=f"header is damaged.*{match}"):
        tvmpass.load_artifact(exported)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(TvmpassError, match="No such file"):
        tvmpass.load_artifact(tmp_path / "none.so")
    with pytest.raises(TvmpassError, match="directory"):
        tvmpass.load_artifact(tmp_path)


def test_another_schema_is_refused(exported, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts, "SCHEMA", 2)
    with pytest.raises(TvmpassError, match="schema 1 is not supported; expected 2"):
        tvmpass.load_artifact(exported)


def test_a_cpu_without_the_features_is_refused_before_code_runs(exported, monkeypatch):
    monkeypatch.setattr(targets, "_host_flags", lambda: frozenset({"sse2"}))

    def never(*_):
        raise AssertionError("the library was loaded")

    monkeypatch.setattr(tvm.runtime, "load_module", never)
    with pytest.raises(TvmpassError, match="needs .*avx2.*this CPU does not have; build again"):
        tvmpass.load_artifact(exported)


def test_without_a_compiler_the_error_names_the_package(lib, tmp_path, monkeypatch):
    monkeypatch.setattr(artifacts.shutil, "which", lambda _: None)
    with pytest.raises(TvmpassError, match=r"needs a C\+\+ compiler: install g\+\+"):
        lib.export(tmp_path / "model.so")
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_that_fails_is_one_clear_error(lib, tmp_path, monkeypatch):
    broken = tmp_path / "broken-cxx"
    broken.write_text("#!/bin/sh\necho no space for the linker >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(TvmpassError, match="linking failed"):
        lib.export(tmp_path / "model.so")
    assert [p.name for p in tmp_path.iterdir()] == ["broken-cxx"]


def test_an_output_that_cannot_be_written(lib, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TvmpassError, match="cannot write .*Not a directory"):
        lib.export(tmp_path / "file" / "model.so")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(TvmpassError, match="cannot write .*directory"):
        lib.export(folder)
    assert list(folder.iterdir()) == []


def test_nested_results_are_flattened():
    x = tvm.runtime.tensor(np.float32([1]))
    found = artifacts.flatten([x, [x, (x, 3)], tvm.runtime.ShapeTuple([2, 3])])
    assert [a.tolist() for a in found] == [[1.0], [1.0], [1.0], 3, [2, 3]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_permission(lib, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TvmpassError, match="Permission denied"):
        lib.export(tmp_path / "model.so")

"""Every schedule family and dtype on a real device, against float64 on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import tvmpass
from scripts.cuda.cases import FLOAT_TOLERANCE, LARGE, SMALL, cases, error
from tests.cuda.conftest import PREBUILT

pytestmark = pytest.mark.cuda

SMALL_CASES, LARGE_CASES = cases(SMALL), cases(LARGE)
MODES = {"fused": "always", "unfused": "never"}


def check(library, case) -> None:
    """Compare on two draws: a kernel that leaves elements alone passes neither."""
    for seed in (0, 1):
        arrays = case.arrays(seed)
        (got,) = library.run(dict(zip([entry.name for entry in library.input_info], arrays, strict=True)))
        assert error(got, case.wanted(arrays)) <= FLOAT_TOLERANCE[case.dtype]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SMALL_CASES)
def test_built_elsewhere(device, prebuilt, name, mode):
    item = prebuilt.get(f"{name}.{SMALL}.{mode}")
    if item is None:
        pytest.fail("not among what was built before; index.json says why", pytrace=False)
    check(tvmpass.load_artifact(PREBUILT / item["file"]), SMALL_CASES[name])


@pytest.mark.parametrize("name", LARGE_CASES)
def test_large_sizes_built_elsewhere(device, prebuilt, name):
    """The sizes that are timed must be right too."""
    case = LARGE_CASES[name]
    arrays = case.arrays()
    wanted = case.wanted(arrays)
    for mode in MODES:
        item = prebuilt.get(f"{name}.{LARGE}.{mode}")
        if item is None:
            pytest.fail("not among what was built before; index.json says why", pytrace=False)
        library = tvmpass.load_artifact(PREBUILT / item["file"])
        (got,) = library.run(dict(zip([entry.name for entry in library.input_info], arrays, strict=True)))
        # Sums of thousands of terms: a rounding of the type per doubling of the length.
        assert error(got, wanted) <= 4 * FLOAT_TOLERANCE[case.dtype], mode


def test_models_built_elsewhere(device, prebuilt):
    """Whole models against their CPU build, on a line of text and on noise."""
    found = [item for item in prebuilt.values() if "model" in item]
    if not found:
        pytest.skip("no model was built before")
    for item in found:
        library = tvmpass.load_artifact(PREBUILT / item["file"])
        with np.load(PREBUILT / item["arrays"], allow_pickle=False) as arrays:
            for label, tolerance in item["tolerance"].items():
                (got,) = library.run({"x": arrays[f"{label}/in"]})
                assert error(got, arrays[f"{label}/out"].astype("float64")) <= tolerance, (item, label)


# Last, because each compiles: within a time limit the others count more.
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SMALL_CASES)
def test_built_here(device, compiler, name, mode):
    with tvmpass.PassContext(config={"tvmpass.fusion": MODES[mode]}):
        library = tvmpass.build(SMALL_CASES[name].module(), target=compiler)
    check(library, SMALL_CASES[name])

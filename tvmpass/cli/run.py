"""``tvmpass run``: run a built library on given or random inputs."""

from __future__ import annotations

import time

import click

from .parameters import json_option, shape_option, shapes_of, verbose_option, write_json

ROUNDS_LEAST, ROUNDS_MOST, SECONDS = 10, 1000, 2.0


@click.command()
@click.argument("artifact", type=click.Path())
@click.option("--inputs", type=click.Path(), help="An .npz file with one array per input, by name.")
@click.option("--outputs", type=click.Path(), help="Write the outputs, by name, to an .npz file.")
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Where to run; the artifact's target decides."
)
@shape_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random inputs.")
@click.option("--time", "timed", is_flag=True, help="Repeat for about two seconds and report the time.")
@json_option
@verbose_option
def run(artifact, inputs, outputs, device, shapes, seed, timed, json_path, verbose) -> None:
    """Run a built library once, or time it.

    ARTIFACT is what 'tvmpass build' wrote; loading it runs the code in it.
    Without --inputs random ones are drawn: normal floats, integers 0 or 1.
    --shape sets the sizes of open dimensions then (1 where not given).

    \b
    Example:
      tvmpass run model.so --inputs in.npz --outputs out.npz --time
    """
    from tvmpass.core.files import check_apart, check_writable

    from .quiet import tvm_silenced

    if inputs and shapes:
        raise click.UsageError("--shape describes random inputs; with --inputs the arrays have their own")
    for path in (outputs, json_path):
        if path and path != "-":
            check_apart(path, artifact, inputs)
            check_writable(path)
    with tvm_silenced(verbose):
        import tvmpass
        from tvmpass.core.npz import read_npz, write_npz

        from .arrays import random_inputs

        library = tvmpass.load_artifact(artifact)
        device = _device_of(library, device)
        arrays = read_npz(inputs) if inputs else random_inputs(library.input_info, shapes_of(shapes), seed)
        results = library.run(arrays)
        named = dict(zip(library.output_names, results, strict=True))
        if outputs:
            write_npz(outputs, named)
        times = _time(lambda: library.run(arrays)) if timed else None
        document = {
            "artifact": artifact,
            "device": device,
            "inputs": {name: _describe(array) for name, array in arrays.items()},
            "outputs": {name: _describe(array, values=True) for name, array in named.items()},
        }
        if times is not None:
            document["time"] = times
        if json_path:
            write_json(json_path, document)
        if json_path != "-":
            _print(document, random=not inputs)


def _device_of(library, wanted: str | None) -> str:
    from tvmpass.core.errors import UsageError

    own = "cpu" if library.metadata.kind == "llvm" else library.metadata.kind
    if wanted not in (None, own):
        raise UsageError(f"--device {wanted}: the artifact was built for {library.metadata.target}")
    if own == "cuda":
        from tvmpass.compile.cuda_probe import require

        require()
    return own


def _time(call) -> dict:
    """Time whole calls, copies in and out included, after one warm-up."""
    call()
    samples: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(samples) < ROUNDS_LEAST or (time.perf_counter() < end and len(samples) < ROUNDS_MOST):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e6)
    samples.sort()
    middle = samples[len(samples) // 2]
    return {"rounds": len(samples), "min_us": round(samples[0], 1), "median_us": round(middle, 1)}


def _describe(array, values: bool = False) -> dict:
    import numpy as np

    entry: dict[str, object] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if values and array.size and array.dtype.kind in "iufb":
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            summary = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()}
        # JSON has no NaN and no infinity: those are written as text.
        entry.update({key: float(v) if np.isfinite(v) else str(v) for key, v in summary.items()})
    return entry


def _print(document: dict, random: bool) -> None:
    from .arrays import show_shape
    from .printable import printable_strings

    document = printable_strings(document)
    for name, entry in document["inputs"].items():
        drawn = "  (random)" if random else ""
        click.echo(f"input   {name}  {show_shape(entry['shape'])}  {entry['dtype']}{drawn}")
    for name, entry in document["outputs"].items():
        values = "  ".join(f"{key} {_number(entry[key])}" for key in ("min", "mean", "max") if key in entry)
        click.echo(f"output  {name}  {show_shape(entry['shape'])}  {entry['dtype']}  {values}")
    if "time" in document:
        t = document["time"]
        click.echo(f"time    median {t['median_us']} us, least {t['min_us']} us, of {t['rounds']} calls")


def _number(value) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"

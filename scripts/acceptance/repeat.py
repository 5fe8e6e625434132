"""D: the same build in two processes gives the same report, byte for byte."""

from __future__ import annotations

import hashlib
import tempfile

from . import models
from .bench import Bench, Verdict
from .corpus import sum_law


def point(bench: Bench) -> Verdict:
    paths = models.fetch(bench.cache)

    def one(name: str) -> dict:
        with tempfile.TemporaryDirectory() as cold:
            first = bench.child("repeat:report", name, paths[name], env={"TVMPASS_CACHE_DIR": cold})
            second = bench.child(
                "repeat:report", name, paths[name], env={"TVMPASS_CACHE_DIR": cold, "PYTHONHASHSEED": "7"}
            )
        error = first.get("error") or second.get("error")
        if error:
            return {"error": error}
        return {"equal": first["sha256"] == second["sha256"], "sum_law": first["sum_law"], **first}

    results = bench.items("D", models.MODELS, one)
    # Whatever the corpus point wrote on this commit is judged too.
    kept = bench.kept("C")
    bad = [n for n, r in results.items() if not (r.get("equal") and r.get("sum_law"))]
    bad += [n for n, r in kept.items() if r.get("sum_law") is False]
    text = f"differs or breaks the law: {', '.join(bad)}" if bad else f"equal for {', '.join(results)}"
    return Verdict(not bad, text, results)


def report(name: str, path: str) -> dict:
    """Build and hash the report."""
    import tvmpass

    library = tvmpass.build(tvmpass.load(path, shapes={"x": models.MODELS[name][1]}), target="llvm")
    text = library.report.dumps()
    return {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "bytes": len(text),
        "sum_law": sum_law(library.report.to_json()),
        "decisions": len(library.report.decisions),
    }

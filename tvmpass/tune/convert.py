"""Carry records over to MetaSchedule's database, and from there.

A database holds the kernels themselves and traces; a record holds a kernel's key and
a recipe or a trace.  So on the way there the kernels come from a model, and a
recipe goes along only where its steps leave a trace.  On the way back a time
stands alone: MetaSchedule compares with nothing, and until a tune has timed a
record against the library's own choice no build uses it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir.schedule import Trace

from tvmpass.catalogue import parse_recipe
from tvmpass.compile.kernel_key import plain_kernel
from tvmpass.compile.record_files import BadLine, TuningRecord
from tvmpass.compile.trace import FUNCTION, is_positional, read_trace, renamed, trace_text
from tvmpass.core.decision import Refusal
from tvmpass.core.errors import TvmpassError, UsageError
from tvmpass.core.kernels import classify
from tvmpass.core.options import Options
from tvmpass.cost.dataset import MAX_FILE_BYTES
from tvmpass.cost.device import device_class as class_of

from .budget import SCREENED
from .forkserver import Call, ForkServer
from .log_lines import Log
from .records import RecordFile
from .work import Workload
from .workload_file import target_text

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
MAX_WORKLOAD_BYTES = 1 << 25
MAX_RECORD_BYTES = 1 << 20
MAX_RECORDS = 100_000
SECONDS, MEMORY_BYTES = 120.0, 4 << 30
WAITING = 4
"""Traces of each kernel, the fastest, that the next tune is asked to time."""

EXPECTED = 0.9
"""Ratio to candidate 0 that stands for an unknown one: promising, but not more."""

Row = dict[str, Any]


def is_database(path: str | os.PathLike) -> bool:
    """Return True for a folder that holds a database of MetaSchedule."""
    return all((Path(path) / name).is_file() for name in (WORKLOADS, RECORDS))


def to_database(logs: Iterable[Log], workloads: Iterable[Workload], folder: str | os.PathLike) -> Row:
    """Write the records of the given kernels as a database; return what went and what did not.

    ``folder`` must not hold one yet.  Failed records do not go, nor do those of
    other kernels, devices or TVM versions, and recipes without a trace.
    Raises `TvmpassError` where nothing is left or the folder cannot be written.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in (WORKLOADS, RECORDS)):
        raise TvmpassError(f"{folder} holds a database of MetaSchedule already: name another folder")
    known = {workload.kernel_key: workload for workload in workloads}
    left_out: Counter[str] = Counter()
    chosen: dict[str, tuple[TuningRecord, Workload, str]] = {}
    for log in logs:
        for record in log.records:
            workload = known.get(record.kernel_key)
            if log.origin.tvm != tvm.__version__:
                left_out["other-tvm"] += 1
            elif workload is None:
                left_out["other-kernel"] += 1
            elif record.status != "ok":
                left_out["failed"] += 1
            else:
                text, why = _trace_of(record, workload)
                if text is None:
                    left_out[why] += 1
                elif chosen.setdefault(record.key, (record, workload, text))[0] is not record:
                    left_out["duplicate"] += 1
    if not chosen:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "no records"
        raise TvmpassError(f"nothing to convert ({why}); nothing is written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".convert-", dir=folder) as made:
            kernels = _commit(Path(made), chosen.values())
            for name in (WORKLOADS, RECORDS):
                os.replace(Path(made) / name, folder / name)
    except OSError as error:
        raise TvmpassError(f"cannot write {folder}: {error.strerror or error}") from None
    return {
        "output": str(folder),
        "to": "metaschedule",
        "records": len(chosen),
        "kernels": kernels,
        "left_out": dict(left_out),
    }


def _commit(folder: Path, chosen: Iterable[tuple[TuningRecord, Workload, str]]) -> int:
    """Write records through TVM's own classes, read them again, and return how many kernels."""
    from tvm.s_tir import meta_schedule as ms

    database = ms.database.JSONDatabase(work_dir=str(folder))
    kernels: dict[str, Any] = {}
    count = 0
    for record, workload, text in chosen:
        function = renamed(workload.function).with_attr("global_symbol", FUNCTION)
        module = tvm.IRModule({FUNCTION: function})
        if workload.kernel_key not in kernels:
            kernels[workload.kernel_key] = database.commit_workload(module)
        schedule = s_tir.Schedule(module)
        Trace.apply_json_to_schedule(json.loads(text), schedule)
        times = [time * 1e-6 for time in record.samples_us or (record.median_us,) if time]
        arguments = ms.arg_info.ArgInfo.from_prim_func(function)
        database.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace, kernels[workload.kernel_key], times, workload.target, arguments
            )
        )
        count += 1
    again = ms.database.JSONDatabase(work_dir=str(folder), allow_missing=False)
    if len(again) != count:
        raise TvmpassError(f"internal: of {count} records MetaSchedule reads {len(again)}")
    return len(kernels)


def _trace_of(record: TuningRecord, workload: Workload) -> tuple[str | None, str]:
    """Return the trace of a record on the kernel with its blocks named by place, or why there is none."""
    if record.trace is not None:
        try:
            value = read_trace(record.trace)
        except BadLine:
            return None, "trace-not-accepted"
        if not is_positional(value):
            return None, "trace-by-names"
        schedule = s_tir.Schedule(tvm.IRModule({FUNCTION: renamed(workload.function)}), seed=1)
        try:
            Trace.apply_json_to_schedule(value, schedule)
        except Exception:  # TVM raises several classes for a trace that does not fit
            return None, "trace-refused"
        return record.trace, ""
    if record.recipe is None:
        return None, "fallback"
    try:
        recipe = parse_recipe(record.recipe)
    except UsageError:
        return None, "recipe-unreadable"
    function = renamed(workload.function)
    schedule = s_tir.Schedule(tvm.IRModule({FUNCTION: function}))
    kernel = classify(function)
    for step in recipe.steps:
        result = step.apply(schedule, kernel)
        if isinstance(result, Refusal):
            return None, "recipe-refused"
        if result is not schedule:
            return None, "recipe-without-trace"  # the step has written the kernel anew
    text = trace_text(schedule)
    again = s_tir.Schedule(tvm.IRModule({FUNCTION: function}))
    Trace.apply_json_to_schedule(json.loads(text), again)
    same = tvm_ffi.structural_equal(plain_kernel(again.mod[FUNCTION]), plain_kernel(schedule.mod[FUNCTION]))
    return (text, "") if same else (None, "recipe-without-trace")


def from_database(
    folder: str | os.PathLike,
    output: str | os.PathLike,
    target: tvm.target.Target,
    options: Options,
    facts: Mapping[str, Any],
) -> tuple[Row, list[str]]:
    """Add a database's records to the record file in ``output``; return a row and problems.

    Records are of the class of ``target`` and the thread count; those of other
    targets are left out.  The fastest traces of each kernel are put down for the
    next tune to time.  Each workload is read in a process of its own.
    Raises `TvmpassError` where the database or the output cannot be used.
    """
    folder = Path(folder)
    named = class_of(target, options.threads)
    problems: list[str] = []
    workloads = list(_lines(folder / WORKLOADS, MAX_WORKLOAD_BYTES, problems))
    by_workload: dict[int, list[list[Any]]] = {}
    for number, line in _lines(folder / RECORDS, MAX_RECORD_BYTES, problems):
        found = _record(line, len(workloads))
        if found is None:
            problems.append(f"{folder / RECORDS}:{number}: skipped: no tuning record")
        else:
            by_workload.setdefault(found[0], []).append(found[1])
    left_out: Counter[str] = Counter()
    entries: list[Row] = []
    with ForkServer(warm_up="tvmpass.tune.convert_child:warm_up") as server:
        for index, records in sorted(by_workload.items()):
            number, line = workloads[index]
            if not isinstance(line, list) or len(line) != 2 or not isinstance(line[1], str):
                problems.append(f"{folder / WORKLOADS}:{number}: skipped: no workload")
                continue
            arguments = {
                "module": line[1],
                "records": records,
                "target": target_text(target),
                "options": dataclasses.asdict(options),
                "named": named,
            }
            outcome = server.call(
                Call("tvmpass.tune.convert_child:convert", arguments, SECONDS, MEMORY_BYTES)
            )
            if outcome.status != "ok":
                why = outcome.cause or outcome.status
                problems.append(
                    f"{folder / WORKLOADS}:{number}: skipped with its {len(records)} records: {why}"
                )
                continue
            entries += outcome.value["lines"]
            left_out.update(outcome.value["left_out"])
    row = {
        "output": str(output),
        "to": "records",
        "records": 0,
        "kernels": len({entry["kernel_key"] for entry in entries}),
        "waiting": 0,
        "left_out": left_out,
    }
    if entries:
        _append(Path(output), named, facts, entries, row)
    row["left_out"] = dict(left_out)
    return row, problems


def _append(output: Path, named: str, facts: Mapping[str, Any], entries: list[Row], row: Row) -> None:
    """Append what the record file does not hold yet, and put the fastest down to be timed."""
    from .log_lines import read_log

    with RecordFile.open(output, named, facts, wait=False) as file:
        held = {record.key for record in read_log(file.path).records}
        fresh = [entry for entry in entries if entry["key"] not in held]
        row["output"] = str(file.path)
        row["records"] = len(fresh)
        if len(fresh) < len(entries):
            row["left_out"]["on-record"] += len(entries) - len(fresh)
        by_kernel: dict[str, list[Row]] = {}
        for entry in fresh:
            file.append(entry)
            by_kernel.setdefault(entry["kernel_key"], []).append(entry)
        for found in by_kernel.values():
            for entry in sorted(found, key=lambda e: (e["median_us"], e["key"]))[:WAITING]:
                waiting = {name: entry[name] for name in ("kernel_key", "recipe", "trace", "recipe_version")}
                file.append({"session": {"event": SCREENED, **waiting, "ratio": EXPECTED}})
                row["waiting"] += 1


def _lines(path: Path, most: int, problems: list[str]) -> Iterator[tuple[int, Any]]:
    """Yield the numbered JSON lines of a database's file; a bad one comes as None."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TvmpassError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, not read")
        with open(path, "rb") as stream:
            number = 0
            while number < MAX_RECORDS and (line := stream.readline(most + 1)):
                number += 1
                value = None
                if len(line) > most:
                    problems.append(f"{path}:{number}: longer than {most} bytes; the rest is not read")
                    return
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    problems.append(f"{path}:{number}: not JSON ({str(error)[:80]})")
                yield number, value
    except OSError as error:
        raise TvmpassError(f"{path}: {error.strerror or error}") from None


def _record(line: Any, workloads: int) -> tuple[int, list[Any]] | None:
    """Return the workload's number and (trace, times, target) of a record's line."""
    if not isinstance(line, list) or len(line) != 2 or not isinstance(line[1], list) or len(line[1]) < 3:
        return None
    index = line[0]
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < workloads:
        return None
    return index, line[1][:3]

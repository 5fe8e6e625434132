"""The plan of a model as the line that ends a session keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .budget import END
from .tasks import Task

MOST_TASKS = 400
"""A model of more kernels is planned again: its line would be too long."""
MOST_NODES = 4
"""Source nodes kept per kernel."""


def task_lines(tasks: Sequence[Task]) -> list[list[Any]] | None:
    """Return the plan as short rows, None where it is too long to keep."""
    if len(tasks) > MOST_TASKS:
        return None
    return [
        [
            task.key,
            task.kind,
            task.recipe_version,
            task.candidate0[:1000],
            task.names[0],
            [node[:200] for node in task.origin[:MOST_NODES]],
            task.calls,
            round(task.predicted_us, 4),
        ]
        for task in tasks
    ]


def remembered_tasks(
    sessions: Sequence[Mapping[str, Any]], model: str, plan: str
) -> tuple[list[Task], dict[str, Any]]:
    """Return the tasks of the last session of this model that followed this plan, and its line.

    No tasks where there is none.  Rows come from a file: one that is not as
    `task_lines` writes it makes the plan unknown, and it is planned again.
    """
    for line in reversed(sessions):
        if line.get("event") == END and line.get("model") == model and line.get("plan") == plan:
            rows = line.get("tasks")
            tasks = [_task(row) for row in rows] if isinstance(rows, list) else []
            known = [task for task in tasks if task is not None]
            return (known if len(known) == len(tasks) else []), dict(line)
    return [], {}


def _task(row: Any) -> Task | None:
    if not isinstance(row, list) or len(row) != 8:
        return None
    key, kind, version, candidate0, name, origin, calls, predicted = row
    texts = (key, kind, candidate0, name)
    if not all(isinstance(text, str) for text in texts) or not isinstance(origin, list):
        return None
    if not isinstance(version, int) or not isinstance(calls, int) or not isinstance(predicted, (int, float)):
        return None
    return Task(
        key, kind, version, candidate0, [name], [str(node) for node in origin], calls, float(predicted)
    )

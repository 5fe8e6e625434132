"""What is known about a function without changing it, behind one manager.

Each analysis is a plain function of a `FunctionView`, in a file of its own;
`Analyses` caches the results per function and drops what a change may have
made wrong.
"""

from .manager import KINDS, Analyses

__all__ = ["KINDS", "Analyses"]

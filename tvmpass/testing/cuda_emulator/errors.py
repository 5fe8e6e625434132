"""What an emulated kernel can do wrong."""

from __future__ import annotations

from tvmpass.core.errors import TvmpassError


class EmulationError(TvmpassError):
    """An emulated kernel broke a rule of CUDA; ``fault`` says which, in one word or two.

    ``line`` is the line of the emitted source where that is known, else 0.
    """

    def __init__(self, message: str, fault: str = "", line: int = 0):
        super().__init__(message)
        self.fault, self.line = fault, line


class Unmodelled(EmulationError):
    """The source uses what the emulator does not model: nothing is known of the kernel."""

    def __init__(self, message: str, line: int = 0):
        super().__init__(message, "unmodelled", line)

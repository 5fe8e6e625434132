"""The version of this distribution, in one place (`setup.py` reads it too)."""

VERSION = "0.1.0"

"""Predict how long a kernel takes, and say nothing where nothing is known."""

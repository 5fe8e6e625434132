"""The acceptance points, one file per topic; run by scripts/accept.py."""

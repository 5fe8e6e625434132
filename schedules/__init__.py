"""Schedule functions, one folder per kind of target; no search, no guessing of targets."""

"""How a tune is shown while it runs, and what it found: in words and as a page."""

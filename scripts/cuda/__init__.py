"""What is built here, and checked and timed where a CUDA device answers."""

"""Run the command line as ``python -m tvmpass``."""

from tvmpass.cli import main

if __name__ == "__main__":
    main()

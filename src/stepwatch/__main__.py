"""`python -m stepwatch`."""

from stepwatch.cli import main

if __name__ == "__main__":
    main(prog_name="stepwatch")

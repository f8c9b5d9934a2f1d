"""`python -m conformance` is the same command as `conformance`."""

from conformance.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

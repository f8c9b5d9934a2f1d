"""A cross-device, cross-version conformance test matrix for PyTorch."""

__version__ = "0.1.0"

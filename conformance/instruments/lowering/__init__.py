"""Lowering a model to MLIR and running it: capture, convert, lower, compile, run, compare. Needs the packages torch-mlir and IREE."""

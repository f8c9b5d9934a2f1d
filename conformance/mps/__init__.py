"""What a release says that a device can do: tables of registered kernels, audits of a model against them, and how good they are.

Three kinds of knowledge, never mixed: *registered* (the release has a kernel), *upstream-tested* (what PyTorch's own test lists say) and
*observed* (a case ran on the device).
"""

"""Instruments: how the cases measure. They compare, poison, capture and count; what they find is judged by the case."""

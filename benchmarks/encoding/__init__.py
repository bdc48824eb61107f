"""The speed of encoding, on processors and GPUs, and the vectors of int8."""

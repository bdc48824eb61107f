"""Time, memory and throughput, beside the libraries that a user would choose instead."""

"""Vector indexes: recall, latency and memory, with filters and on GPUs."""

"""Training, inversion and audits of encoders."""

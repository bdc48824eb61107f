"""Training of encoders and rerankers, mining, and changes of an encoder."""

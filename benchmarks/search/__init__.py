"""What a search finds: its quality, its contexts, its code passages, and the parts that it is made of."""

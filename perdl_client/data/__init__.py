"""Data: load a client's samples, preprocess them, warn of what may spoil the result."""

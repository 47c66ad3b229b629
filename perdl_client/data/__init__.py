"""Data: load a client's samples, preprocess them, warn of possible problems."""

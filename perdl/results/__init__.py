"""What a run or a client left on disk, as arrays and numbers."""

"""Data: load a client's samples, prepare them, tell what is doubtful in them."""

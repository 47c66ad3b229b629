"""What one client computes: the client's half of algorithm 1."""

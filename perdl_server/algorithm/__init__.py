"""What the server computes: the server's half of algorithm 1."""

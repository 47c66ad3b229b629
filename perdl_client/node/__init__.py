"""The node: the client's process, its connection to one server, and how each side checks the other."""

"""The node: the client's process, its connection to one server, and how both are trusted."""

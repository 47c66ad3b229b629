"""The commands of ``perdl``, by what they are for; ``perdl.cli`` puts them together."""

"""perdl finds what many private datasets share and what each has alone."""

__version__ = "0.1.0"

"""The paper's experiments, measured over many seeds and against what a user would do instead."""

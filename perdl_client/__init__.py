"""The client's side: Flower's ClientApp, learners, local update, data, private state."""

"""Watch a run while it goes on: callbacks, progress, dashboard, trackers."""

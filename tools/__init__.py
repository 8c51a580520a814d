"""Programs for those who work on undertow; nothing here is installed."""

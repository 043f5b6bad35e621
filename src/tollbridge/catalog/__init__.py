"""The model catalog: fetch model lists, cache them, and filter them by the settings."""

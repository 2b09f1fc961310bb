"""Routes that generate nothing: information, models and the catalogue, with their operations."""

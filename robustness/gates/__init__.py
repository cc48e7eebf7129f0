"""Gates: rules that a report must pass, and the one before it that it must not fall behind."""

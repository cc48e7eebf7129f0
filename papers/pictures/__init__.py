"""Pictures of what attention sees: masks, architectures, a photograph."""

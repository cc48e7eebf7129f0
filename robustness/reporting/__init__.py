"""Reporting: files, pictures and published numbers beside ours."""

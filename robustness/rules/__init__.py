"""What the rules are: how images are prepared, answers judged, and counts made into numbers."""

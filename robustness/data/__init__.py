"""What the data is: the benchmarks, their layouts and classes, their images, and their health."""

"""One module for each kind of data: it is read, or generated where none is given."""

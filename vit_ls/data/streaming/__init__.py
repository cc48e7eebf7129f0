"""Images that can only be read in order: WebDataset shards and Hugging Face streams."""

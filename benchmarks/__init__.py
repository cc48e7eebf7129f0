"""Speed and memory beside other models; run from the checkout."""

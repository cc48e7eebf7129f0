"""Running: the model, the plan, the loop over the images, and what is kept of it."""

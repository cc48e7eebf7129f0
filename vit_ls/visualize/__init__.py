"""Pictures of what a model attends to: `python -m vit_ls.visualize`."""

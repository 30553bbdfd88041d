"""From a PyTorch callable on a GPU to what it launches. Imports torch and cuda lazily."""

"""Statistics to answers: solve, model, choice of alpha; knows nothing of clients."""

"""Linear regression on scikit-learn's diabetes."""

"""`PerDL`, the estimator: arrays in, scikit-learn's conventions, a fitted model out."""

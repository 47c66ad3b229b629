"""`PerDL`, the estimator: it learns from arrays and follows scikit-learn's conventions."""

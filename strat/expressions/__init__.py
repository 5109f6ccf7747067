"""CVXPY expressions read as data: symbolic affine forms over all records at once."""

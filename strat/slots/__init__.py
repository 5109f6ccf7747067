"""Slots: the numbers of a graph regularizer at one point of the edge weights, without CVXPY."""

"""Runs over several hosts: which device is where, what processes begin with, what hosts have.

In: a file of hosts and a plan. Out: assignments, and the main of a device's process. Imported by
`driver`, `cli` and `report`.
"""

"""Runs over several hosts: assignment of devices, setup of processes, facts of hosts.

In: a file of hosts and a plan. Out: assignments, and the main function of a device's process.
Imported by `driver`, `cli` and `report`.
"""

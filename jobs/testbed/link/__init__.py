"""A long link on one machine: brokers in one network namespace, their clients in another.

A pair of TUN devices and a process that delays every packet connect the two namespaces.
"""

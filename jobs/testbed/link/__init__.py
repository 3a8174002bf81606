"""A long link on one machine: brokers in one network namespace, who loads them in another.

The two are joined by a pair of TUN devices and a process that holds every packet back.
"""

"""The resources that a load needs, such as brokers, disk space and network bandwidth."""

"""The resources that a load needs: brokers, disk space and bytes on the network."""

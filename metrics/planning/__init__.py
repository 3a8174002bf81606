"""What a load needs: brokers, and bytes on the network."""

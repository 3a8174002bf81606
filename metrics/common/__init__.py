"""What every package above `search` needs: errors, bounds of options, quantities with units."""

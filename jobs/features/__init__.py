"""One folder for each feature. A feature is imported neither by another feature nor by another
package.
"""

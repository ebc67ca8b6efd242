"""Trees ↔ tar streams, without ever leaving the tree: everything goes by directory descriptors and never follows a link."""

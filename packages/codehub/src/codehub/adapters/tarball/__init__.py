"""Converts between trees and tar streams.

Uses directory descriptors and never follows links, so it never leaves the tree.
"""

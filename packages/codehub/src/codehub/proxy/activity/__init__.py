"""Detects user activity: filters out background traffic, buffers the rest and flushes it."""

"""Homes: where what users wrote is kept, whole or not at all."""

"""The settings. The entry point loads them once at start; nothing reads the environment at import."""

from codehub.settings.load import NAMES, load_settings
from codehub.settings.model import Settings

__all__ = ["NAMES", "Settings", "load_settings"]

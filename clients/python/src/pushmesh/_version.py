"""The version of the package; a release writes its own here."""

__version__ = "0.0.0"

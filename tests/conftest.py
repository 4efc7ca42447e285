"""Settings for all tests: one hypothesis profile, no deadline (compilation counts otherwise)."""

from hypothesis import settings

settings.register_profile("exact", deadline=None, max_examples=6, derandomize=True)
settings.load_profile("exact")

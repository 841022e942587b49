"""The page of the map: static files that `api/web.py` serves. Nothing here is Python: the page is
plain ES modules, which need no build, and `vendor/` is written by `make vendor`."""

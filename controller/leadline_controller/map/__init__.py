"""The map in the browser: page, JSON and stream, who may see them, and where boards are drawn.

What it shows is that of inspect/. page/ has the files for the browser: plain ES modules, which need
no build, and page/vendor/, which `make vendor` writes.
"""

"""Relay programs as an input: text, JSON and parameters, without an old TVM.

Text or JSON becomes the small tree of `ast`; `convert` turns that into Relax,
operator by operator from the tables in `operators`.
"""

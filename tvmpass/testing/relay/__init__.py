"""An independent second reading of Relay: random programs, a printer, an interpreter.

Nothing here uses the parser or the converters of `tvmpass.frontends.relay`; only
the tree and the table of attributes are shared.  Where all agree, none is wrong
in the same way.
"""

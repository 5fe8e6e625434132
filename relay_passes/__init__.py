"""Graph rules, on Relax.

The folder is named for those who come from Relay, which upstream TVM replaced
by Relax; every class and operator name here says Relax.  Each sub-package holds
one kind of rule, one rule per file, and lists them in ``RULES`` in the order in
which they run.
"""

from . import fusion, layout, recognize, simplify

RULES = (*simplify.RULES, *recognize.RULES, *layout.RULES, *fusion.RULES)

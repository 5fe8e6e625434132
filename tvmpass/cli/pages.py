"""HTML pages from templates that lie beside the code that fills them."""

from __future__ import annotations


def template(package: str, name: str):
    """Return a template; what is put into it is escaped, and a missing value is an error."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)

"""For the documentation site: examples in docstrings (`>>> ...`) become code blocks.

Markdown would read the three signs as quotations. mkdocs.yml names this file as an extension of griffe.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.M)


class Examples(griffe.Extension):
    """Fences every paragraph that begins with `>>>`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)

"""HTML in which every string is escaped unless it was made here: the only way text gets into a report.

`tag("td", name, title=note)` escapes both; what `tag` returns is `Markup` and is not escaped again.
"""

import html
import json
from typing import Any

VOID = frozenset({"meta", "br", "input", "line"})  # elements without content


class Markup(str):
    """Text that is already HTML."""


def escape(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element. Attributes: `class_` and `for_` lose the underscore, other underscores become hyphens; None and False
    leave an attribute out, True writes its name alone. Children that are None are left out."""
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{escape(value)}"')
    head = " ".join(words)
    if name in VOID and not children:
        return Markup(f"<{head}/>")
    return Markup(f"<{head}>{join(children)}</{name}>")


def join(parts: Any) -> Markup:
    """Parts one after the other, each escaped if need be; lists and tuples are joined in turn."""
    out = []
    for part in parts:
        if isinstance(part, list | tuple):
            out.append(join(part))
        elif part is not None:
            out.append(escape(part))
    return Markup("".join(out))


def data(value: Any, **attributes: Any) -> Markup:
    """Values for a script, as JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Markup(text), type="application/json", **attributes)

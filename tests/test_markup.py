"""No string gets out of its place: what goes into an element or attribute comes back from a parser unchanged."""

import json
from html.parser import HTMLParser

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dualgoal.report import html
from dualgoal.report.html import Markup, join, tag

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40)


PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))

    def handle_data(self, text):
        self.text += text


@PATIENT
@given(TEXT, TEXT)
def test_text_and_attributes_survive_a_parser(text, value):
    reader = Reader()
    reader.feed(tag("p", text, title=value))
    reader.close()
    assert (reader.tags, reader.text) == ([("p", {"title": value})], text)


@PATIENT
@given(st.recursive(TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_data_cannot_end_its_script_and_comes_back(value):
    page = html.data(value, id="x")
    inside = page[page.index(">") + 1 : -len("</script>")]
    assert "<" not in inside and json.loads(inside) == value


def test_elements():
    assert tag("input", type="checkbox", checked=True, disabled=False, name_=None) == '<input type="checkbox" checked/>'
    assert (
        tag("td", "a", ["b", None, tag("b", "<")], class_="x", data_value=1)
        == '<td class="x" data-value="1">ab<b>&lt;</b></td>'
    )
    assert join(["<", Markup("<br/>"), 3]) == "&lt;<br/>3"
    assert isinstance(join([]), Markup)

"""A picture that a notebook shows: learning curves or losses of one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dualgoal.files import write_atomic
from dualgoal.paper import figures
from dualgoal.paper.figures import Curve


@dataclass(frozen=True)
class Picture:
    """A drawing: a notebook shows it, and `save` writes it as an SVG file."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the SVG file."""
        write_atomic(Path(path), self.svg.encode())
        return Path(path)


def draw(
    curves: Mapping[str, Curve], *, title: str, y_label: str, y_range: tuple[float, float] | None = None
) -> Picture:
    """Curves over gradient steps, with a legend."""
    drawn = figures.chart_svg(
        list(enumerate(curves.values())), name=title, y_label=y_label, y_range=y_range, title=title, labels=list(curves)
    )
    return Picture(drawn[drawn.index("<svg") :])  # without what belongs to a file of its own

"""Draw points in a plane as SVG, each with its label: the same word in several texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .heat_map import svg_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...core.arrays import Floats

_SIDE, _MARGIN = 420, 40  # pixels


def plane_map(title: str, labels: Sequence[str], points: Floats) -> str:
    """Draw points, shape (labels, 2), at one scale for both axes.

    :param title: stands above the picture.
    """
    width = _SIDE + 2 * _MARGIN + 7 * max(map(len, labels))
    span = max(float(np.ptp(points, axis=0).max(initial=0)), 1e-12)
    pixels = _MARGIN + (points - points.min(0)) / span * _SIDE
    pixels[:, 1] += _MARGIN
    size = f'width="{width}" height="{_SIDE + 3 * _MARGIN}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11" fill="#222">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="12" y="18" font-size="13">{svg_text(title)}</text>',
    ]
    for label, (x, y) in zip(labels, pixels.tolist(), strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#005ab5"/>')
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}">{svg_text(label)}</text>')
    return "\n".join([*parts, "</svg>\n"])

#!/usr/bin/env python3
"""Cut the console's font to what it shows: the letters of English and its neighbours, the weights of text and titles.

Usage: scripts/console_font.py SOURCE.woff2 TARGET.woff2
"""

from __future__ import annotations

import sys
from io import BytesIO

from fontTools.subset import Options, Subsetter, load_font, save_font
from fontTools.ttLib import TTFont
from fontTools.varLib.instancer import instantiateVariableFont

CODES = (
    *range(0x20, 0x7F),
    *(0xA0, 0xB5, 0xB7, 0xD7, 0x2013, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026, 0x2212),  # signs of text
    *(0xC4, 0xD6, 0xDC, 0xDF, 0xE4, 0xE8, 0xE9, 0xF6, 0xFC),  # letters
    *range(0x2190, 0x2194),  # arrows
)
WEIGHTS = (400, 650)
FEATURES = ["kern", "tnum", "calt", "ccmp", "locl", "mark"]


def main(source: str, target: str) -> None:
    light = BytesIO()
    instantiateVariableFont(TTFont(source, recalcTimestamp=False), {"wght": WEIGHTS}).save(light)
    light.seek(0)
    options = Options(flavor="woff2", layout_features=FEATURES, recalc_timestamp=False)
    font = load_font(light, options)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=CODES)
    subsetter.subset(font)
    save_font(font, target, options)


if __name__ == "__main__":
    main(*sys.argv[1:])

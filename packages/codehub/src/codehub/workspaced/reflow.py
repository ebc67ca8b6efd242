"""A new size for a terminal's screen, as xterm.js does it: wrapped lines of the main screen are reflowed.

Only lines with the cursor stay as they are, because their program redraws them. The alternate screen is cut and padded.
"""

from __future__ import annotations

from .screen import ERASED, Line, Main, Saved, Screen


class _Buffer:
    """All lines of one screen, of which the last ones are shown: `base` is the first of these."""

    def __init__(self, lines: list[Line], base: int, x: int, y: int, saved_x: int, saved_y: int) -> None:
        self.lines, self.base = lines, base
        self.x, self.y = x, y
        self.saved_x, self.saved_y = saved_x, saved_y

    def change_rows(self, old: int, new: int, cols: int) -> None:
        added = 0
        for _ in range(old, new):
            if len(self.lines) < new + self.base:
                if self.base and len(self.lines) <= self.base + self.y + added + 1:
                    self.base -= 1
                    added += 1
                else:
                    self.lines.append(Line(cols))
        for _ in range(new, old):
            if len(self.lines) > new + self.base:
                if len(self.lines) > self.base + self.y + 1:
                    self.lines.pop()
                else:
                    self.base += 1
        self.y = min(self.y, new - 1) + added

    def widen(self, old: int, new: int, rows: int) -> None:
        kept: list[Line] = []
        removed = 0
        for group in _groups(self.lines):
            at = len(kept) + removed
            if len(group) == 1 or at <= self.base + self.y < at + len(group):
                kept += group
                continue
            broken = _broken(group, old, new)
            kept += broken
            removed += len(group) - len(broken)
        self.lines = kept
        for _ in range(removed):
            if self.base:
                self.base -= 1
                continue
            self.y = max(0, self.y - 1)
            if len(self.lines) < rows:
                self.lines.append(Line(new))
        self.saved_y = max(self.saved_y - removed, 0)

    def narrow(self, old: int, new: int, rows: int) -> None:
        at = left = len(self.lines)
        added = 0
        new_lines: dict[int, list[Line]] = {}  # by the line that they follow
        for group in reversed(_groups(self.lines)):
            at -= len(group)
            group = group[: max(0, left - at)]
            fits = not group or (len(group) == 1 and not group[0].wrapped and _length(group[0]) <= new)
            if fits or at <= self.base + self.y < at + len(group):
                continue
            broken = _broken(group, old, new)
            self.lines[at : at + len(group)] = broken[: len(group)]
            new_lines[at + len(group) - 1] = broken[len(group) :]
            more = len(broken) - len(group)
            added += more
            for _ in range(more):
                if self.base == 0 and self.y < rows - 1:
                    # The screen is not full: the last line gives way, even one that has just been broken.
                    self.y += 1
                    left -= 1
                elif self.base == 0 or self.base < left + added - rows:
                    self.base += 1
            self.saved_y = min(self.saved_y + more, self.base + rows - 1)
        kept: list[Line] = []
        for index, line in enumerate(self.lines):
            kept += [*([line] if index < left else []), *new_lines.get(index, [])]
        self.lines = kept


def _groups(lines: list[Line]) -> list[list[Line]]:
    """Return the lines, those together that continue each other."""
    groups: list[list[Line]] = []
    for line in lines:
        if line.wrapped and groups:
            groups[-1].append(line)
        else:
            groups.append([line])
    return groups


def _length(line: Line) -> int:
    end = len(line.chars)
    while end and line.chars[end - 1] == ERASED:
        end -= 1
    return end


def _broken(group: list[Line], old: int, new: int) -> list[Line]:
    """Return the lines of a group with other line breaks."""
    chars: list[str] = []
    attrs: list[str] = []
    for number, line in enumerate(group):
        length = _length(line) if number == len(group) - 1 else old
        if number < len(group) - 1 and line.chars[old - 1] == ERASED and group[number + 1].is_wide(0):
            length = old - 1  # the wide character did not fit there
        chars += line.chars[:length]
        attrs += line.attrs[:length]
    broken: list[Line] = []
    at = 0
    while at < len(chars) or not broken:
        end = min(at + new, len(chars))
        if end < len(chars) and end - at > 1 and chars[end] == "":
            end -= 1
        line = Line(0, wrapped=group[0].wrapped if at == 0 else True)
        line.chars, line.attrs = chars[at:end], attrs[at:end]
        line.fit(new)
        broken.append(line)
        at = end
    return broken


def resize(screen: Screen, cols: int, rows: int) -> None:
    """Resize a screen. Programs redraw what they show themselves."""
    old_cols, old_rows = screen.cols, screen.rows
    if (cols, rows) == (old_cols, old_rows):
        return
    main = screen.main
    lines, x, y, saved = (screen.lines, screen.x, screen.y, screen.saved) if main is None else (*main[:3], main.saved)
    base = len(screen.scrollback)
    trimmed = screen.scrolled - base  # lines that the scrollback has no longer
    buffer = _Buffer([*screen.scrollback, *lines], base, x, y, saved.x, saved.y - trimmed)
    for line in buffer.lines:
        if cols > old_cols:
            line.fit(cols)
    buffer.change_rows(old_rows, rows, cols)
    if cols > old_cols:
        buffer.widen(old_cols, cols, rows)
    elif cols < old_cols:
        buffer.narrow(old_cols, cols, rows)
    for line in buffer.lines:
        line.fit(cols)
    buffer.lines += [Line(cols) for _ in range(buffer.base + rows - len(buffer.lines))]
    screen.scrollback.clear()
    screen.scrollback.extend(buffer.lines[: buffer.base])
    screen.scrolled = trimmed + buffer.base
    shown = buffer.lines[buffer.base : buffer.base + rows]
    x, y = min(buffer.x, cols - 1), max(0, min(buffer.y, rows - 1))
    saved = saved._replace(x=min(saved.x, cols - 1), y=buffer.saved_y + trimmed)
    screen.cols, screen.rows = cols, rows
    screen.top, screen.bottom = 0, rows - 1
    if main is None:
        screen.lines, screen.x, screen.y, screen.saved = shown, x, y, saved
    else:
        screen.main = Main(shown, x, y, 0, rows - 1, saved, _more_tabs(main.tabs, cols))
        _resize_alternate(screen, old_rows)
    screen.tabs = _more_tabs(screen.tabs, cols)


def _resize_alternate(screen: Screen, old_rows: int) -> None:
    for line in screen.lines:
        line.fit(screen.cols)
    buffer = _Buffer(screen.lines, 0, screen.x, screen.y, 0, 0)
    buffer.change_rows(old_rows, screen.rows, screen.cols)
    screen.lines = buffer.lines[buffer.base :]
    screen.x, screen.y = min(screen.x, screen.cols - 1), buffer.y
    x, y = min(screen.saved.x, screen.cols - 1), max(0, screen.saved.y - buffer.base)
    screen.saved = Saved(x, y, *screen.saved[2:])


def _more_tabs(tabs: set[int], cols: int) -> set[int]:
    """Return the tab stops, continued up to the new width."""
    begin = cols if cols in tabs else max((stop for stop in tabs if stop < cols), default=0)
    return tabs | set(range(begin, cols, 8))

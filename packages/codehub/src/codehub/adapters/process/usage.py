"""Resource usage of an instance: its whole process tree, with CPU since the last observation."""

from __future__ import annotations

import time

import psutil

from codehub.adapters.process.records import Record
from codehub.adapters.process.supervisor import descendants


class UsageMeter:
    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}  # by identity: (when, CPU seconds)

    def of(self, record: Record) -> dict[str, float]:
        cpu_s, memory = 0.0, 0
        for pid, _ in descendants(record.pid):
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    times = process.cpu_times()
                    cpu_s += times.user + times.system
                    memory += process.memory_info().rss
            except psutil.Error:
                continue
        now = time.monotonic()
        before, cpu_before = self._last.get(record.identity, (now, cpu_s))
        self._last[record.identity] = (now, cpu_s)
        if len(self._last) > 10_000:
            self._last.clear()
        percent = 100.0 * max(0.0, cpu_s - cpu_before) / (now - before) if now > before else 0.0
        return {
            "cpu_percent": percent,
            "memory_bytes": float(memory),
            "memory_limit_bytes": float(record.memory_limit_bytes or psutil.virtual_memory().total),
        }

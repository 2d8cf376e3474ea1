"""What some threads have finished, for a thread that takes it in an order of its own."""

import threading
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Arrivals(Generic[Item]):
    """Items are added in any order, and whoever waits for one goes on when it is there. After the end of the context
    nothing is added, so that nobody waits for what will never come."""

    def __init__(self) -> None:
        self._items, self._ended, self._changed = set[Item](), False, threading.Condition()

    def __enter__(self) -> "Arrivals[Item]":
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def add(self, *items: Item) -> None:
        with self._changed:
            self._items.update(items)
            self._changed.notify_all()

    def wait_for(self, item: Item) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or item in self._items)
            if item not in self._items:
                raise RuntimeError(f"{item} never came")

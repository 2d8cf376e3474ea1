"""What a worker process of the faults does; alone in a file, so that it starts at once."""

import time


def slowly(number: int) -> int:
    time.sleep(0.7)
    return number * number

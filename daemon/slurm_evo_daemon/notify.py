"""Tell systemd how the daemon is (sd_notify(3)): one datagram to the address it gave."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(state: str, env: Mapping[str, str] = os.environ) -> bool:
    """Send ``READY=1``, ``STATUS=…``, ``WATCHDOG=1`` and the like; True if systemd was listening.

    Not being told is no fault of ours, so nothing is raised.
    """
    address = env.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # an abstract name: its first byte is zero
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.connect(address)
            line.sendall(state.encode())
    except OSError:
        return False
    return True

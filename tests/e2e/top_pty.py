"""top_pty.py BELFRY: belfry top on a terminal, with 40 vGPUs v00 to v39. The terminal is a small model of a real one, which
knows only the sequences that belfry top may send, and takes no text past its last column."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

BELFRY = sys.argv[1]
SECONDS = 60


class Screen:
    def __init__(self, rows, columns):
        self.is_alternate, self.is_shown, self.pending = False, True, b""
        self.resize(rows, columns)

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.next_size = None  # from the next frame on
        self.lines = [[" "] * columns for _ in range(rows)]
        self.marks = [False] * rows
        self.row = self.column = 0
        self.is_marked = False

    def sequence(self, text):
        if text == "[H":
            if self.next_size:
                self.resize(*self.next_size)
            self.row = self.column = 0
        elif text == "[K":
            assert self.column < self.columns, "an erase behind the last column takes its character away"
            self.lines[self.row][self.column :] = [" "] * (self.columns - self.column)
            self.marks[self.row] = False
        elif text == "[J":
            for row in range(self.row, self.rows):
                self.lines[row] = [" "] * self.columns
                self.marks[row] = False
        elif text in ("[7m", "[0m"):
            self.is_marked = text == "[7m"
        elif text in ("[?1049h", "[?1049l"):
            self.is_alternate = text[-1] == "h"
        elif text in ("[?25h", "[?25l"):
            self.is_shown = text[-1] == "h"
        else:
            raise AssertionError(f"an unknown sequence: {text!r}")

    def feed(self, data):
        data, self.pending = self.pending + data, b""
        while data:
            if data[0] == 0x1B:
                found = re.match(rb"\x1b(\[[?0-9;]*[A-Za-z])", data)
                if not found:
                    self.pending = data
                    return
                self.sequence(found.group(1).decode())
                data = data[found.end() :]
                continue
            self.character(chr(data[0]))
            data = data[1:]

    def character(self, char):
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            assert self.row < self.rows, "the screen scrolls"
        else:
            assert self.column < self.columns, "a line is wider than the screen"
            self.lines[self.row][self.column] = char
            self.marks[self.row] |= self.is_marked
            self.column += 1

    def text(self):
        return ["".join(line).rstrip() for line in self.lines]

    def selected(self):
        return [line.split()[0] for line, is_marked in zip(self.text(), self.marks) if is_marked]


class Top:
    def __init__(self, rows, columns, term="xterm", arguments=()):
        self.screen = Screen(rows or 24, columns or 80)
        self.raw = b""
        pid, self.master = pty.fork()
        if not pid:
            self.set_size(0, rows, columns)
            os.environ["TERM"] = term
            for name in ("COLUMNS", "LINES"):
                os.environ.pop(name, None)
            os.execv(BELFRY, [BELFRY, "top", *arguments])
        self.pid = pid

    @staticmethod
    def set_size(fd, rows, columns):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        """With a frame of the new size. Only keys and signals cause frames: see -d."""
        self.screen.next_size = (rows or 24, columns or 80)
        self.set_size(self.master, rows, columns)
        self.until(lambda: not self.screen.next_size, f"a resize to {rows} lines of {columns} columns")

    def drain(self, seconds):
        """What it writes within that time; False at its end."""
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data
            if self.is_screen():
                self.screen.feed(data)
        return True

    def is_screen(self):
        return b"\x1b" in self.raw

    def until(self, is_so, what):
        end = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < end, f"{what}: " + "\n".join(self.screen.text())
            assert self.drain(0.02) or is_so(), f"{what}: it has ended"

    def type(self, keys):
        os.write(self.master, keys)

    def ends(self):
        while self.drain(1):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)


def has(top, text):
    return any(text in line for line in top.screen.text())


def select_and_scroll():
    top = Top(24, 80, arguments=["-d", "600"])
    top.until(lambda: has(top, "vGPUs 1 to 20 of 40"), "the first page")
    assert top.screen.is_alternate and not top.screen.is_shown
    assert not has(top, "CLASS") and has(top, "WAITS FOR"), top.screen.text()
    assert top.screen.selected() == []
    for keys, name in ((b"\x1b[B", "v00"), (b"\x1b[B\x1b[B", "v02"), (b"\x1b[6~", "v22"), (b"\x1b[F", "v39"),
                       (b"\x1b[A", "v38"), (b"\x1b[5~", "v18"), (b"\x1b[H", "v00"), (b"G", "v39"), (b"k", "v38")):
        top.type(keys)
        top.until(lambda name=name: top.screen.selected() == [name], f"{keys!r}")
    assert has(top, "vGPUs 21 to 40 of 40")
    # A resize keeps what is selected in sight; a size of nothing is taken for 24 lines of 80 columns.
    for rows, columns in ((8, 40), (50, 200), (3, 20), (0, 0)):
        top.resize(rows, columns)
        top.until(lambda: top.screen.selected() == ["v38"], f"{rows} lines of {columns} columns")
    top.resize(24, 160)
    top.until(lambda: has(top, "CLASS"), "a wide terminal")
    top.type(b"h")
    top.until(lambda: has(top, "Any key goes back"), "the help")
    top.type(b"x\x1b[A")
    top.until(lambda: top.screen.selected() == ["v38"], "back from the help")
    # It is suspended and goes on.
    os.kill(top.pid, signal.SIGTSTP)
    top.until(lambda: not top.screen.is_alternate, "suspended")
    os.kill(top.pid, signal.SIGCONT)
    top.until(lambda: top.screen.is_alternate and top.screen.selected() == ["v38"], "resumed")
    top.type(b"q")
    assert top.ends() == 0
    assert not top.screen.is_alternate and top.screen.is_shown


def ends_with_the_terminal():
    top = Top(24, 80)
    top.until(lambda: has(top, "vGPUs 1 to"), "a frame")
    os.close(top.master)
    os.waitpid(top.pid, 0)


def a_terminal_without_a_size():
    top = Top(0, 0, arguments=["-n", "1"])
    assert top.ends() == 0
    assert top.is_screen()


def dumb():
    for term in ("dumb", ""):
        top = Top(24, 80, term=term, arguments=["-n", "2", "-d", "0.1"])
        assert top.ends() == 0
        assert not top.is_screen(), "a dumb terminal gets escape sequences"
        lines = top.raw.decode().split("\r\n")
        assert sum(line.startswith("NAME") for line in lines) == 2, lines
        assert sum(line.startswith("v39 ") for line in lines) == 2, lines
        assert max(map(len, lines)) <= 80, lines


for test in (select_and_scroll, ends_with_the_terminal, a_terminal_without_a_size, dumb):
    test()
    print("ok:", test.__name__)
